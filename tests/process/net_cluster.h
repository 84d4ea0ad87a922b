// A cluster over TCP whose nodes are real processes under load: the memory nodes are the declock program, the compute
// nodes process_cn. What a test does to them must cost nobody an update or a lock.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "member_net/net_node.h"
#include "member_zk/coordinator_option.h"
#include "networks/networks.h"
#include "process/accounts.h"
#include "process/programs.h"

namespace declock::process {

class NetCluster {
 public:
  // On a busy machine a living one may be taken for dead, and joins again: with a short lease for ever.
  explicit NetCluster(Duration lease) : lease_(lease), control_(Control::map(directory_ / "control")) {
    EXPECT_TRUE(wire::create_secret(directory_ / "secret"));
  }

  // Not memory node 0 coordinates, but this.
  void set_coordinator(const std::string& url) { coordinator_ = url; }
  // Looks at the memory from this network namespace.
  void set_reader_namespace(const std::string& name) { reader_namespace_ = name; }

  Control& control() { return control_; }
  std::uint64_t updates() const { return updates_; }
  Program& process(std::size_t i) { return *processes_[i]; }
  std::size_t processes() const { return processes_.size(); }
  Program& mn(int id) { return *mns_[id]; }
  const std::string& address(int id) { return addresses_[id]; }

  // Number 0 coordinates. `with` goes before the program, as in "ip netns exec NAME".
  void start_mn(int id, const std::string& listen = "127.0.0.1:0", std::vector<std::string> with = {}) {
    std::vector<std::string> arguments = std::move(with);
    arguments.insert(arguments.end(), {DECLOCK_PROGRAM, "mn", "--listen", listen, "--size", "1MiB",
                                       "--secret", directory_ / "secret", "--id", std::to_string(id)});
    if (id == 0 || !coordinator_.empty()) {
      arguments.insert(arguments.end(),
                       {"--members", std::to_string(kMembers), "--endpoints", std::to_string(kWorkers),
                        "--lease", fmt::format("{}ms", lease_.ns / 1'000'000)});
    }
    if (id == 0 && coordinator_.empty()) {
      arguments.insert(arguments.end(), {"--state", directory_ / "state"});
    } else {
      arguments.insert(arguments.end(), {"--coordinator", coordinator()});
    }
    mns_[id] = std::make_unique<Program>(arguments);
    ASSERT_TRUE(mns_[id]->says(" serves, incarnation ")) << mns_[id]->output();
    const std::string& said = mns_[id]->output();
    const std::string before = "listens at ";
    const std::size_t at = said.find(before) + before.size();
    addresses_[id] = said.substr(at, said.find(' ', at) - at);
  }
  void kill_mn(int id) {
    mns_[id]->send(SIGKILL);
    (void)mns_[id]->wait();
  }

  // With its locks on that memory node.
  void start(std::size_t i, int mn, std::vector<std::string> with = {}, const std::string& work = "0") {
    if (i >= processes_.size()) processes_.resize(i + 1);
    processes_[i] = started(i, mn, work, std::move(with));
  }
  // One that the cluster does not look after; what it does is in cn.cc.
  std::unique_ptr<Program> started(std::size_t station, int mn, const std::string& work,
                                   std::vector<std::string> with = {}) {
    std::vector<std::string> arguments = std::move(with);
    arguments.insert(
        arguments.end(),
        {DECLOCK_PROCESS_CN, fmt::format("tcp:{}|{}|{}", coordinator(), mn, directory_ / "secret"),
         directory_ / "control", std::to_string(station), std::to_string(++started_), work});
    return std::make_unique<Program>(arguments);
  }
  void kill_process(std::size_t i) {
    processes_[i]->send(SIGKILL);
    (void)processes_[i]->wait();
  }

  // Everybody but `except` gets a lock again, or so many.
  static constexpr std::size_t kNobody = kStationsMax;
  void expect_progress(std::size_t except = kNobody, std::uint64_t locks = 1) {
    std::vector<std::uint64_t> before;
    for (const Station& station : control_.stations) before.push_back(station.operations.load());
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (i == except) continue;
      const auto goes_on = [&] { return control_.stations[i].operations.load() >= before[i] + locks; };
      const bool ends = soon([&] { return goes_on() || processes_[i]->has_ended(); });
      ASSERT_TRUE(goes_on()) << "process " << i
                             << (ends ? fmt::format(" has ended ({}): ", processes_[i]->wait())
                                      : " waits for ever: ")
                             << processes_[i]->output() << logs();
    }
  }

  // Until the coordinator, which is memory node 0, has taken out whoever has that place.
  bool is_removed(std::size_t i) {
    return mns_[0]->says(fmt::format("removed the compute node in slot {} (incarnation {})",
                                     control_.stations[i].slot.load(),
                                     control_.stations[i].incarnation.load()));
  }
  // Until it has been told so more often than that.
  bool is_told(std::size_t i, std::uint64_t before) {
    return soon([&] { return control_.stations[i].evictions.load() > before; });
  }

  void stop_all() {
    control_.stop.store(true);
    for (auto& process : processes_) EXPECT_EQ(process->wait(), 0) << process->output();
  }

  // Nothing that was acknowledged is missing, and nothing is there that nobody was at, or that was certainly not done.
  void expect_updates(int mn, std::uint64_t unacknowledged_max) {
    std::uint32_t incarnation = 0;
    const int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (!reader_namespace_.empty())
      enter(open(("/run/netns/" + reader_namespace_).c_str(), O_RDONLY | O_CLOEXEC));
    const std::vector<std::uint64_t> there = words(mn, incarnation);
    enter(home);
    updates_ += expect_accounts(control_, incarnation % kMemories, unacknowledged_max,
                                [&](std::uint64_t offset) { return there[(offset - kObjects) / 8]; });
    EXPECT_GT(updates_, 0u);
  }

 private:
  std::string coordinator() { return coordinator_.empty() ? addresses_[0] : coordinator_; }

  static void enter(int name_space) {
    EXPECT_TRUE(name_space >= 0 && (setns(name_space, CLONE_NEWNET) == 0 || errno == EPERM));
    close(name_space);
  }

  std::string logs() {
    std::string all;
    for (std::size_t i = 0; i < processes_.size(); ++i)
      all += fmt::format("\nprocess {}: {} operations, {} resets, {} evictions", i,
                         control_.stations[i].operations.load(), control_.stations[i].resets.load(),
                         control_.stations[i].evictions.load());
    for (const auto& [id, mn] : mns_)
      all += fmt::format("\nmemory node {}:\n{}", id, last_of(mn->output()));
    return all;
  }
  static std::string last_of(const std::string& text) {
    return text.substr(text.size() - std::min<std::size_t>(text.size(), 2000));
  }

  // What the memory says in the end, read as any compute node would.
  std::vector<std::uint64_t> words(int mn, std::uint32_t& incarnation) {
    member::NetNodeConfig config;
    config.secret = *wire::read_secret(directory_ / "secret");
    EXPECT_TRUE(member::set_coordinator(coordinator(), config));
    config.patience = kHangs;
    config.transport = [](const std::string& host) { return net::open_transport({Fabric::tcp}, host); };
    auto node = member::NetNode::join(config);
    EXPECT_TRUE(node) << node.error();
    std::vector<std::uint64_t> words((kWhichMemory - kObjects) / 8);
    if (!node) return words;
    const RemoteAddr objects{MnId{static_cast<std::uint16_t>(mn)}, kObjects};
    Op read = Op::read(objects, words, Purpose::verify);
    Endpoint& endpoint = (*node)->endpoint(0);
    EXPECT_TRUE((*node)->worker(0).run([&] { return post_until_known(endpoint, read); }));
    incarnation = endpoint.incarnation(objects.mn);
    (*node)->leave();
    return words;
  }

  const Duration lease_;
  TemporaryDirectory directory_;
  Control& control_;
  std::map<int, std::unique_ptr<Program>> mns_;
  std::map<int, std::string> addresses_;
  std::vector<std::unique_ptr<Program>> processes_;
  std::uint64_t started_ = 0;
  std::uint64_t updates_ = 0;
  std::string coordinator_;
  std::string reader_namespace_;
};

}  // namespace declock::process
