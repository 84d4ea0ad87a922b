// What the program's exit status says.
#pragma once

namespace declock::cli {

enum ExitCode {
  kFine = 0,
  kBadInput = 1,    // usage, a file, the environment; one line says what, and what is accepted
  kIncomplete = 2,  // could not run, or not to the end
  kSafety = 3,      // a safety violation was found
  kLiveness = 4,    // a liveness violation was found
};

}  // namespace declock::cli
