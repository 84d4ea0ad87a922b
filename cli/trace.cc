// declock trace: merges the traces of several processes, and draws who handed a lock to whom.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>

#include "base/units.h"
#include "commands.h"
#include "exit_codes.h"
#include "looks/merge_traces.h"
#include "output.h"

namespace declock::cli {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string out;
};

std::string read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw BadInput(fmt::format("'{}' is a directory; name files", path));
  errno = 0;
  std::ifstream file{path, std::ios::binary};
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw BadInput(fmt::format("'{}' cannot be read: {}", path, std::strerror(errno)));
  return text;
}

int run(const Options& options) {
  std::vector<looks::TraceText> traces;
  std::set<std::filesystem::path> seen;
  for (const std::string& path : options.files) {
    std::error_code error;
    if (!seen.insert(std::filesystem::weakly_canonical(path, error)).second)
      throw BadInput(fmt::format("'{}' is named twice", path));
    traces.push_back({path, read_file(path)});
  }
  ResultFile out{options.out, "--out"};
  const Result<looks::MergedTrace, std::string> merged = looks::merge_traces(traces);
  if (!merged) throw BadInput(merged.error());
  out.write(merged->text);
  if (out.is_standard_output()) return kFine;
  fmt::print("{}: {} events of {} processes, {} local and {} remote hand-overs\n", options.out,
             format_count(merged->events), merged->processes, format_count(merged->local),
             format_count(merged->remote));
  if (merged->lost > 0) {
    fmt::print("{} more events were lost: a process keeps its first {} only.\n",
               format_count(merged->lost), format_count(1 << 20));
  }
  fmt::print("Open it at https://ui.perfetto.dev or chrome://tracing.\n");
  return kFine;
}

}  // namespace

Action add_trace(Command program) {
  Command app = program.add_command(
      "trace", "Merges traces of lock operations, with an arrow for every hand-over");
  auto options = std::make_shared<Options>();
  app.add_option("FILE", options->files, "What processes wrote by trace=FILE in their URI").required();
  app.add_option("--out", options->out, "For a Chrome-trace viewer; -: standard output")
      .required()
      .type_name("FILE");
  return [options] { return run(*options); };
}

}  // namespace declock::cli
