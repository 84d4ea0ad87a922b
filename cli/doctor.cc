// declock doctor: what works on this machine, and how to mend what does not.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "base/units.h"
#include "commands.h"
#include "exit_codes.h"
#include "member_shm/compute_node.h"

namespace declock::cli {
namespace {

// Nothing: it works. Otherwise how to mend it.
struct Finding {
  std::string works;
  std::string mend;
};

Finding processors() {
  const unsigned count = std::thread::hardware_concurrency();
  if (count >= 2) return {fmt::format("{} processors", count), ""};
  return {"one processor", "locks work; benchmarks of contention say little on one processor"};
}

Finding shared_memory(const std::string& directory) {
  struct statvfs room {};
  if (statvfs(directory.c_str(), &room) != 0) {
    return {fmt::format("no {}: {}", directory, std::strerror(errno)),
            fmt::format("mount -t tmpfs tmpfs {}", directory)};
  }
  const std::uint64_t free_bytes = std::uint64_t{room.f_bavail} * room.f_frsize;
  const std::string text = fmt::format("{}: {} MiB free", directory, format_count(free_bytes >> 20));
  if (free_bytes >= std::uint64_t{256} << 20) return {text, ""};
  return {text, fmt::format("mount -o remount,size=1G {} (in a container: --shm-size=1g)", directory)};
}

// Everything at once, as an application would use it: files without a name, file locks, mapping, threads.
Finding a_cluster(const std::string& directory) {
  member::ComputeNode::Config config;
  config.cluster.name = fmt::format("doctor-{}", getpid());
  config.cluster.directory = directory;
  config.cluster.members = 2;
  config.cluster.mn_bytes = 4096;
  config.remove_when_last = true;
  auto first = member::ComputeNode::join(config);
  if (!first) return {"no cluster can be made: " + first.error(), "see the reason there"};
  auto second = member::ComputeNode::join(config);
  auto third = member::ComputeNode::join(config);
  const bool locks_work = second && !third;
  if (second) (*second)->leave();
  (*first)->leave();
  if (locks_work) return {"a cluster in shared memory, with file locks for its members", ""};
  return {"open file description locks do not exclude", "use a local file system (tmpfs) for --dir"};
}

Finding process_descriptors() {
  const long descriptor = syscall(SYS_pidfd_open, getpid(), 0);
  if (descriptor >= 0) {
    close(static_cast<int>(descriptor));
    return {"process descriptors: a killed process is noticed at once", ""};
  }
  return {fmt::format("no process descriptors: {}", std::strerror(errno)),
          "a killed process is noticed after 100 ms; Linux 5.3 or later has them"};
}

Finding open_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string text = fmt::format("{} open files per process", format_count(limit.rlim_cur));
  return {text, limit.rlim_cur >= 256 ? "" : "ulimit -n 1024"};
}

int run(const std::string& directory) {
  int unwell = 0;
  const auto report = [&](std::string_view what, const Finding& finding) {
    fmt::print("{:<4} {:<8} {}\n", finding.mend.empty() ? "ok" : "!!", what, finding.works);
    if (finding.mend.empty()) return;
    fmt::print("              mend it: {}\n", finding.mend);
    unwell += 1;
  };
  report("sim", {"the simulator needs nothing", ""});
  report("shm", shared_memory(directory));
  report("shm", a_cluster(directory));
  report("shm", process_descriptors());
  report("machine", processors());
  report("machine", open_files());
  fmt::print("{}\n", unwell == 0 ? "everything works" : fmt::format("{} to mend", unwell));
  return unwell == 0 ? kFine : kIncomplete;
}

}  // namespace

Action add_doctor(CLI::App& program) {
  CLI::App& app =
      *program.add_subcommand("doctor", "What works on this machine, and how to mend what does not");
  auto directory = std::make_shared<std::string>(shm::kDefaultDirectory);
  app.add_option("--dir", *directory, "Where clusters in shared memory are")->type_name("DIRECTORY");
  return [directory] { return run(*directory); };
}

}  // namespace declock::cli
