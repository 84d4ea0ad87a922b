// declock doctor: what works on this machine, and how to mend what does not.
#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "base/futex.h"
#include "base/units.h"
#include "commands.h"
#include "exit_codes.h"
#include "looks/remove_ipc.h"
#include "member_shm/compute_node.h"
#include "networks/networks.h"

namespace declock::cli {
namespace {

// Nothing: it works. Otherwise how to mend it.
struct Finding {
  std::string works;
  std::string mend;
  bool is_optional = false;  // most machines do without
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

// Only where processes outlive the sessions of their user.
Finding log_out() {
  const passwd* user = getpwuid(getuid());
  const std::string name = user != nullptr ? user->pw_name : "";
  if (!looks::removes_ipc("/", name, getuid())) return {"files stay when their user logs out", ""};
  return {"logind removes your files in /dev/shm when you log out, also under processes that go on",
          "RemoveIPC=no in /etc/systemd/logind.conf, 'loginctl enable-linger', or run as a system user",
          true};
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

// One fetch-and-add on a memory node and a compute node that are both this process.
Finding a_network(Fabric kind) {
  struct Sink final : net::Transport::Sink {
    void on_complete(net::Batch&, Errc result) override { status = result; }
    void on_packet(const net::Packet&) override {}
    void on_ask(const net::PeerId&, const net::Blob&) override {}
    std::optional<Errc> status;
  } sink;
  const bool is_tcp = kind == Fabric::tcp;
  const net::NetworkOptions options{kind};
  std::vector<std::uint64_t> memory(8);
  auto exposure = net::open_exposure(options, "127.0.0.1", std::as_writable_bytes(std::span{memory}));
  auto transport = net::open_transport(options, "127.0.0.1");
  if (!exposure || !transport) {
    return {(exposure ? transport.error() : exposure.error()),
            is_tcp ? "apt-get install libfabric1" : "as it says there; sim, shm and tcp do without"};
  }
  const auto offer = (*transport)->offer(MnId{0});
  const auto answer = offer ? (*exposure)->open({}, *offer) : offer;
  if (!answer) return {"no access could be opened: " + answer.error(), "see the reason there"};
  const auto connected = (*transport)->connect(MnId{0}, *answer);
  if (!connected) return {"no connection: " + connected.error(), "see the reason there"};
  net::Batch batch;
  batch.count = 1;
  batch.works[0] = {OpKind::fetch_add, 0, (*transport)->take(1), 1};
  const Time latest = monotonic_now() + seconds(5);
  bool posted = (*transport)->post(batch);
  while (!sink.status && monotonic_now() < latest) {
    if (!posted) posted = (*transport)->post(batch);
    (void)(*transport)->poll(sink);
    (void)(*exposure)->progress();
  }
  if (sink.status == Errc::ok && memory[0] == 1)
    return {
        is_tcp ? "libfabric over TCP: a fetch-and-add works" : "verbs: a one-sided fetch-and-add works",
        ""};
  return {"a fetch-and-add did not complete within 5 s",
          "is a firewall between this machine and itself?"};
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
    fmt::print("{:<4} {:<8} {}\n",
               finding.mend.empty()  ? "ok"
               : finding.is_optional ? "--"
                                     : "!!",
               what, finding.works);
    if (finding.mend.empty()) return;
    fmt::print("              mend it: {}\n", finding.mend);
    unwell += finding.is_optional ? 0 : 1;
  };
  report("sim", {"the simulator needs nothing", ""});
  report("shm", shared_memory(directory));
  report("shm", a_cluster(directory));
  report("shm", process_descriptors());
  report("shm", log_out());
  report("tcp", a_network(Fabric::tcp));
  Finding verbs = a_network(Fabric::verbs);
  verbs.is_optional = true;
  report("verbs", verbs);
  report("machine", processors());
  report("machine", open_files());
  fmt::print("{}\n", unwell == 0 ? "everything works that every machine should have"
                                 : fmt::format("{} to mend", unwell));
  return unwell == 0 ? kFine : kIncomplete;
}

}  // namespace

Action add_doctor(Command program) {
  Command app =
      program.add_command("doctor", "What works on this machine, and how to mend what does not");
  auto directory = std::make_shared<std::string>(shm::kDefaultDirectory);
  app.add_option("--dir", *directory, "Where clusters in shared memory are").type_name("DIRECTORY");
  return [directory] { return run(*directory); };
}

}  // namespace declock::cli
