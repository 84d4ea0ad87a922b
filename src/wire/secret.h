// What the processes of a cluster share, and nobody else has.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "declock/result.h"

namespace declock::wire {

struct Secret {
  std::array<std::uint8_t, 32> key{};
};

// From a file of 64 hex digits and perhaps a newline, that belongs to this user or to root and that nobody else may
// touch. An error is one line; it never has a part of the file's contents in it.
Result<Secret, std::string> read_secret(const std::string& path);

// Makes such a file, with a random secret; never overwrites one. It is on disk when this returns.
Result<void, std::string> create_secret(const std::string& path);

}  // namespace declock::wire
