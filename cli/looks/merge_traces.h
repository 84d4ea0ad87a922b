// The traces of several processes as one, in the format of Chrome and Perfetto, with an arrow for every hand-over: from
// the release to the wait that it ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "declock/result.h"

namespace declock::looks {

struct TraceText {
  std::string path;  // for errors
  std::string text;
};

struct MergedTrace {
  std::string text;
  std::uint64_t events = 0;  // arrows left out
  std::uint64_t processes = 0;
  std::uint64_t local = 0;  // hand-overs
  std::uint64_t remote = 0;
  std::uint64_t lost = 0;  // events that the processes had no room for
};

// An error has one line that names the file.
Result<MergedTrace, std::string> merge_traces(const std::vector<TraceText>& traces);

}  // namespace declock::looks
