#include "visit.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

#include "client/seeing.h"
#include "commands.h"
#include "exit_codes.h"

namespace declock::cli {
namespace {

const char* last_line = "";

}  // namespace

Cluster visit(const std::string& uri) {
  Options options;
  options.workers = 1;
  options.create = false;
  options.publish = false;
  Result<Cluster, Error> opened = client::open_to_look(uri, options);
  if (!opened) throw CannotRun(opened.error().message);
  return std::move(*opened);
}

void end_on_alarm(const char* line) {
  last_line = line;
  struct sigaction action {};
  action.sa_handler = [](int) {
    (void)!write(STDERR_FILENO, last_line, std::strlen(last_line));
    _exit(kIncomplete);  // without leaving the cluster, which will notice
  };
  sigaction(SIGALRM, &action, nullptr);
}

}  // namespace declock::cli
