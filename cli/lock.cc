// declock lock: takes a lock of a cluster by its name, and runs a command while it holds it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>

#include "base/futex.h"
#include "base/histogram.h"
#include "base/units.h"
#include "cluster_options.h"
#include "exit_codes.h"
#include "hier/hier.h"
#include "options.h"
#include "output.h"

namespace declock::cli {
namespace {

struct Options {
  ClusterOptions cluster;
  std::string name;
  bool shared = false;
  std::uint16_t mn = 0;
  std::uint32_t times = 1;
  std::vector<std::string> command;
};

// Does not outlive this process, which holds the lock for it.
Result<pid_t, std::string> start(std::vector<std::string> command) {
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  const auto failed = [&](int error) {
    return Failure{fmt::format("{}: {}", command[0], std::strerror(error))};
  };
  int failure[2];  // says why the command did not begin; closed when it does
  if (pipe2(failure, O_CLOEXEC) != 0) return failed(errno);
  const pid_t self = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == self) (void)execvp(argv[0], argv.data());
    (void)!write(failure[1], &errno, sizeof errno);
    _exit(127);
  }
  const int fork_error = errno;
  close(failure[1]);
  int error = pid < 0 ? fork_error : 0;
  (void)!read(failure[0], &error, sizeof error);
  close(failure[0]);
  if (error == 0) return pid;
  if (pid > 0) waitpid(pid, nullptr, 0);
  return failed(error);
}

// Whoever waits for the lock need not have it any more.
Task<void> give_up_when_interrupted(Worker& worker, TimedLockClient& lock,
                                    const std::atomic<bool>& stop) {
  while (!stop) co_await worker.sleep_for(milliseconds(10));
  lock.cancel();
}

// Until the command has ended, or this node is no member any more and the lock is somebody else's. Its exit status, or
// nothing.
Task<std::optional<int>> watch(Worker& worker, const member::Membership& membership, pid_t pid,
                               const std::atomic<bool>& stop) {
  int status = 0;
  bool is_told = false;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (membership.evicted()) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      co_return std::optional<int>{};
    }
    if (stop && !std::exchange(is_told, true)) kill(pid, SIGTERM);
    co_await worker.sleep_for(milliseconds(2));
  }
  co_return std::optional{WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)};
}

struct Uses {
  std::uint32_t left;
  Histogram waited_ns{};
  int status = kFine;           // of the command, if there is one
  bool lies_elsewhere = false;  // the memory node restarted: the lock must be looked up again
};

Task<Result<void, std::string>> use(Worker& worker, const Options& options, Endpoint& endpoint,
                                    const member::Membership& membership, TimedLockClient& lock,
                                    const member::Node::Memory& found, Uses& uses,
                                    const std::atomic<bool>& stop) {
  const RemoteAddr at = found.at;
  if (endpoint.incarnation(at.mn) < found.mn_incarnation) {
    const Result<void> connected = co_await endpoint.reconnect(at.mn);
    if (!connected) co_return Failure{std::string{to_string(connected.error())}};
  }
  for (uses.lies_elsewhere = false; uses.left > 0 && !stop; --uses.left) {
    const Time called = worker.now();
    Task<void> giving_up = give_up_when_interrupted(worker, lock, stop);
    giving_up.start();
    const Result<Hold> hold = co_await lock.acquire_until(
        at, options.shared ? Mode::shared : Mode::exclusive, ThreadWorker::kNever);
    giving_up = {};
    if (!hold && hold.error() == Errc::cancelled)
      co_return Failure{fmt::format("interrupted while it waited for '{}'", options.name)};
    uses.lies_elsewhere = !hold && hold.error() == Errc::mn_restarted;
    if (uses.lies_elsewhere) co_return Result<void, std::string>{};
    if (!hold) co_return Failure{std::string{to_string(hold.error())}};
    uses.waited_ns.add(static_cast<std::uint64_t>((worker.now() - called).ns));
    std::string failure;
    if (!options.command.empty()) {
      const Result<pid_t, std::string> started = start(options.command);
      const std::optional<int> ended =
          started ? co_await watch(worker, membership, *started, stop) : std::optional{kIncomplete};
      if (!started) failure = started.error();
      if (!ended) {
        co_return Failure{fmt::format(
            "the cluster took this compute node for dead while it held '{}'; '{}' was killed",
            options.name, options.command[0])};
      }
      uses.status = *ended;
    }
    const Result<void> released = co_await lock.release(*hold);
    if (!released && failure.empty()) failure = to_string(released.error());
    if (!failure.empty()) co_return Failure{failure};
  }
  co_return Result<void, std::string>{};
}

void say_how_long(const Options& options, const Histogram& waited_ns) {
  const auto us = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  fmt::print("'{}' was {} {} times; getting it took p50 {:.1f}  p99 {:.1f}  max {:.1f} us\n",
             options.name, options.shared ? "shared" : "held", format_count(waited_ns.count()),
             us(waited_ns.quantile(500)), us(waited_ns.quantile(990)), us(waited_ns.max()));
}

int run(const Options& options) {
  constexpr std::size_t kNameBytesMax = member::Node::kNameBytesMax;
  if (options.name.empty() || options.name.size() > kNameBytesMax)
    throw BadInput(fmt::format("'{}': a name has 1 to {} bytes", options.name, kNameBytesMax));
  const std::unique_ptr<member::NetNode> node = join(node_config(options.cluster));
  const std::atomic<bool>& stop = interrupted();
  Result<void, std::string> used;
  Uses uses{options.times};
  bool has_place = false;  // in the lock's queue, of a wait that was given up
  {
    const cql::Options cql{.patience = milliseconds(20), .outlives_restarts = false};
    hier::Node locks{node->lock_shape(), hier::Policy{}, cql,
                     std::vector<hier::Station>{{&node->endpoint(0), &node->membership(0)}}};
    locks.worker(0).cql().start_patrol();
    const std::unique_ptr<TimedLockClient> lock = locks.client(0);
    node->start();
    do {
      const MnId mn{options.mn};
      const auto found = node->allocate_locks(mn, "lock/" + options.name, 1);
      if (!found) {
        used = Failure{found.error()};
        break;
      }
      node->mean_only(mn, found->mn_incarnation);
      used = node->worker(0).run([&] {
        return use(node->worker(0), options, node->endpoint(0), node->membership(0), *lock, *found,
                   uses, stop);
      });
    } while (uses.lies_elsewhere && !stop);
    node->stop();
    has_place = locks.worker(0).running() > 0;
  }
  if (!has_place) node->leave();  // otherwise taken for dead, so that the place is cleaned up
  if (!used) throw CannotRun(used.error());
  if (options.command.empty()) say_how_long(options, uses.waited_ns);
  return uses.status;
}

}  // namespace

Action add_lock(Command program, const std::vector<std::string>& command) {
  Command app = program.add_command("lock",
                                    "Takes a lock of a cluster by its name and runs a command "
                                    "meanwhile, as flock does on one machine");
  auto options = std::make_shared<Options>();
  app.add_option("NAME", options->name, "Of the lock; made if there is none").required();
  app.add_option("COMMAND", options->command,
                 "What to run while holding it, after --; nothing: how long it takes");
  app.add_flag("--shared", options->shared, "Together with others who want it shared");
  app.add_option("--times", options->times, "Lock and unlock so often")
      .check(whole_number(1, 100'000'000));
  app.add_option("--mn", options->mn, "The memory node that has the lock")
      .check(whole_number(0, member::kMnsMax - 1));
  add_cluster_options(app, options->cluster);
  return [options, command] {
    options->command.insert(options->command.end(), command.begin(), command.end());
    return run(*options);
  };
}

}  // namespace declock::cli
