// What a process in shared memory can lose while it lives: the files, its descriptors, or itself, in a forked child.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <thread>

#include "api/support.h"
#include "base/check.h"
#include "base/futex.h"
#include "member_shm/compute_node.h"
#include "member_shm/slot_lock.h"
#include "support/soon.h"

namespace declock::api {
namespace {

Errc code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::system_error& error) {
    return static_cast<Errc>(error.code().value());
  }
  return Errc::ok;
}

std::string name_in(const std::string& uri) {
  return uri.substr(4, uri.find('?') - 4);
}

// As logind does with RemoveIPC, or a person with rm.
void unlink_all(const std::string& uri) {
  (void)unlink(shm::path_of("/dev/shm", name_in(uri)).c_str());
  (void)unlink(shm::memory_path_of("/dev/shm", name_in(uri), 0).c_str());
}

void expect_every_call_evicted(Cluster& cluster, SharedMutex& held, SharedMutex& other, RemoteAddr at) {
  std::uint64_t word = 77;
  EXPECT_EQ(code_of([&] { other.lock(); }), Errc::evicted);
  EXPECT_EQ(code_of([&] { (void)other.try_lock(); }), Errc::evicted);
  EXPECT_EQ(code_of([&] { (void)other.try_lock_for(kLong); }), Errc::evicted);
  EXPECT_EQ(code_of([&] { other.lock_and_read(at, {&word, 1}); }), Errc::evicted);
  EXPECT_EQ(cluster.read(at, {&word, 1}).error(), Errc::evicted);
  EXPECT_EQ(cluster.write(at, {&word, 1}).error(), Errc::evicted);
  EXPECT_EQ(word, 77u);
  EXPECT_EQ(cluster.named_lock("new").error().code, Errc::evicted);
  EXPECT_EQ(cluster.allocate("new", 8).error().code, Errc::evicted);
  EXPECT_EQ(cluster.client().error().code, Errc::evicted);
  EXPECT_EQ(code_of([&] { (void)held.token(); }), Errc::evicted);
  EXPECT_EQ(held.write_and_unlock(at, {&word, 1}).error(), Errc::evicted);
}

TEST(Lost, MembersWhoseFilesWereUnlinkedEvictThemselves) {
  const std::string uri = fresh_uri();
  Cluster first = open(uri);
  Cluster second = open(uri);
  SharedMutex held = first.shared_mutex("m");
  SharedMutex other = first.shared_mutex("other");
  SharedMutex wanted = second.shared_mutex("m");
  SharedMutex checked = second.shared_mutex("checked");
  const RemoteAddr at = *first.allocate("data", 8);
  held.lock();
  checked.lock();
  std::atomic<Errc> waited{Errc::ok};
  std::thread waiter{[&] { waited.store(code_of([&] { wanted.lock(); })); }};
  ASSERT_TRUE(until_waiting(second, 1));
  unlink_all(uri);
  Cluster next = open(uri);  // makes new ones
  SharedMutex mine = next.shared_mutex("m");
  mine.lock();
  EXPECT_TRUE(soon([&] { return first.evicted() && second.evicted(); }))
      << "the cluster is split in two";
  if (!first.evicted()) std::abort();  // the waiter would wait for ever
  waiter.join();
  EXPECT_EQ(waited.load(), Errc::evicted);
  expect_every_call_evicted(first, held, other, at);
  EXPECT_EQ(checked.unlock_checked().error(), Errc::evicted);
  EXPECT_EQ(first.close().error().code, Errc::evicted);
  EXPECT_EQ(second.close().error().code, Errc::evicted);
  EXPECT_TRUE(std::filesystem::exists(shm::path_of("/dev/shm", name_in(uri))))
      << "they have removed the files of the new cluster";
  EXPECT_FALSE(next.evicted());
  mine.unlock();
  EXPECT_TRUE(next.close());
}

TEST(Lost, AMemorysFileThatIsReplacedEvictsToo) {
  const std::string uri = fresh_uri();
  Cluster cluster = open(uri);
  const std::string memory = shm::memory_path_of("/dev/shm", name_in(uri), 0);
  std::filesystem::copy_file(memory, memory + ".copy");
  std::filesystem::rename(memory + ".copy", memory);
  EXPECT_TRUE(soon([&] { return cluster.evicted(); }));
  (void)cluster.close();
  EXPECT_TRUE(shm::remove_cluster("/dev/shm", name_in(uri)));
}

#ifndef __SANITIZE_THREAD__  // closing what another thread uses is the race that this is about
// Zeroed memory that the test and its children share.
struct Board {
  std::atomic<int> step;
  std::atomic<int> other_step;
};
Board& board() {
  void* at = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  return *static_cast<Board*>(at);
}

// `reuse`: other files get the numbers, and no lock is ever seen on them.
void lose_descriptors(bool reuse) {
  const std::string uri = fresh_uri();
  Board& steps = board();
  Child healthy{[&] {
    Cluster cluster = open(uri);
    SharedMutex mutex = cluster.shared_mutex("healthy");
    mutex.lock();
    steps.other_step.store(1);
    if (!soon([&] { return steps.other_step.load() == 2; })) return 3;
    if (cluster.evicted()) return 1;
    const bool released = mutex.unlock_checked().has_value();
    return released && cluster.close() ? 0 : 2;
  }};
  Child careless{[&] {
    if (!soon([&] { return steps.other_step.load() == 1; })) return 3;
    Cluster cluster = open(uri);
    SharedMutex held = cluster.shared_mutex("careless");
    SharedMutex other = cluster.shared_mutex("other");
    const RemoteAddr at = *cluster.allocate("data", 8);
    held.lock();
    if (close_range(3, ~0U, 0) != 0) return 4;
    for (int i = 0; reuse && i < 20; ++i) (void)::open("/dev/null", O_RDWR);
    steps.step.store(1);
    if (!soon([&] { return cluster.evicted(); })) return 5;
    expect_every_call_evicted(cluster, held, other, at);
    if (testing::Test::HasFailure()) return 6;
    Cluster again = open(uri);  // takes the numbers that the first one had
    if (cluster.close().error().code != Errc::evicted) return 7;
    SharedMutex mutex = again.shared_mutex("careless");
    if (!mutex.try_lock_for(kLong)) return 8;
    if (again.evicted() || !mutex.unlock_checked()) return 9;
    return again.close() ? 0 : 10;
  }};
  EXPECT_EQ(careless.wait(), 0);
  steps.other_step.store(2);
  EXPECT_EQ(healthy.wait(), 0) << "somebody healthy was removed";
}

TEST(Lost, AForkedChildClosesNothingThatGotTheNumbersOfTheLibrary) {
  const std::string uri = fresh_uri();
  Child careless{[&] {
    Cluster cluster = open(uri);
    const int other = ::open("/dev/null", O_RDWR);
    const std::string ours = shm::path_of("/dev/shm", name_in(uri));
    std::vector<int> taken;
    for (int number = 3; number < other; ++number) {
      std::error_code none;
      const auto file = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(number), none);
      if (file == ours && dup2(other, number) == number) taken.push_back(number);
    }
    if (taken.empty()) return 1;
    Child child{[&] {
      for (const int number : taken) {
        if (fcntl(number, F_GETFD) < 0) return 1;
      }
      return 0;
    }};
    return child.wait();
  }};
  EXPECT_EQ(careless.wait(), 0);
}

// Who does not know yet that it has lost its slot goes on using what belongs to it.
TEST(Lost, ASlotIsGivenToNobodyBeforeWhoeverHadItHasFoundOut) {
  const std::string uri = fresh_uri() + "&members=1";
  Child child{[&] {
    Cluster old = open(uri);
    if (close_range(3, ~0U, 0) != 0) return 1;
    Cluster again = open(uri);
    if (!old.evicted()) return 2;
    return again.close() ? 0 : 3;
  }};
  EXPECT_EQ(child.wait(), 0);
}

// Messages and bells of the slot are for whoever gets it next, however long this process lives.
TEST(Lost, AProcessThatWasEvictedReadsNothingAnyMore) {
  const std::string uri = fresh_uri();
  Child child{[&] {
    Cluster old = open(uri);
    auto file = shm::Cluster::open("/dev/shm", name_in(uri));
    if (!file || close_range(3, ~0U, 0) != 0) return 1;
    if (!soon([&] { return member::view_of(*file).members.empty(); })) return 2;
    BellWord& bell = file->dispatcher_bell(Slot{0});
    bell.store(static_cast<std::uint32_t>(Bell::asleep));
    std::size_t sent = 0;
    if (!file->mailbox(EndpointId{0}).send({Slot{0}, 0, 2}, EndpointId{0}, Message{}, sent)) return 3;
    (void)ring(bell);
    const Time until = monotonic_now() + milliseconds(300);
    while (monotonic_now() < until) {
      if (bell.load() != static_cast<std::uint32_t>(Bell::running)) return 4;
      if (!file->mailbox(EndpointId{0}).anything_arrived()) return 5;
    }
    return old.close().error().code == Errc::evicted ? 0 : 6;
  }};
  EXPECT_EQ(child.wait(), 0);
}

// The new handle has the numbers of the old one.
TEST(Lost, AProcessThatOpensAgainBeforeItHasFoundOutLosesNothingNew) {
  const std::string uri = fresh_uri();
  Child child{[&] {
    std::optional<Cluster> old = open(uri);
    if (close_range(3, ~0U, 0) != 0) return 1;
    Cluster again = open(uri);
    if (old->close().error().code != Errc::evicted) return 2;
    old.reset();
    auto file = shm::Cluster::open("/dev/shm", name_in(uri));
    auto lock = member::SlotLock::open(shm::path_of("/dev/shm", name_in(uri)));
    if (!file || !lock) return 3;
    const member::View view = member::view_of(*file);
    if (view.members.size() != 1 || !lock->is_taken(view.members[0].slot).value_or(false)) return 4;
    SharedMutex mutex = again.shared_mutex("m");
    mutex.lock();
    if (!mutex.unlock_checked()) return 5;
    return again.close() ? 0 : 6;
  }};
  EXPECT_EQ(child.wait(), 0);
}

TEST(Lost, AProcessThatClosedTheLibrarysDescriptorsEvictsItselfAndNobodyElse) {
  lose_descriptors(false);
}

TEST(Lost, AProcessThatReusedTheLibrarysDescriptorsEvictsItselfAndNobodyElse) {
  lose_descriptors(true);
}
#endif

// What others of the old member's locks do is in processes_test.cc.
TEST(Lost, WhoClosesWithALockHeldIsRemovedAtOnce) {
  const std::string uri = fresh_uri();
  Cluster first = open(uri);
  Cluster second = open(uri);
  SharedMutex held = first.shared_mutex("m");
  SharedMutex wanted = second.shared_mutex("m");
  auto file = shm::Cluster::open("/dev/shm", name_in(uri));
  ASSERT_TRUE(file);
  held.lock();
  EXPECT_EQ(first.close().error().code, Errc::busy);
  EXPECT_EQ(member::view_of(*file).removals, 1u) << "the others have to find out by themselves";
  EXPECT_TRUE(wanted.try_lock_for(kLong));
  EXPECT_TRUE(wanted.unlock_checked());
  EXPECT_TRUE(second.close());
}

// Memory that was given out by a cluster of the same name, which is no more: other things lie there now.
TEST(Lost, AddressesOfAClusterThatWasRemovedAreRefusedByTheNextOneOfItsName) {
  const std::string uri = fresh_uri();
  std::optional<Cluster> before = open(uri);
  const LockRef old_lock = *before->named_lock("m");
  const RemoteAddr old_data = *before->allocate("data", 8);
  ASSERT_TRUE(before->close());  // and removes it
  Cluster now = open(uri);
  SharedMutex mutex = now.shared_mutex("m");
  const RemoteAddr data = *now.allocate("data", 8);
  ASSERT_EQ(data.offset, old_data.offset);
  std::uint64_t word = 1;
  EXPECT_EQ(now.write(old_data, {&word, 1}).error(), Errc::mn_restarted);
  EXPECT_EQ(now.read(old_data, {&word, 1}).error(), Errc::mn_restarted);
  SharedMutex old_mutex{now, old_lock};
  EXPECT_EQ(code_of([&] { old_mutex.lock(); }), Errc::mn_restarted);
  EXPECT_EQ(code_of([&] { (void)old_mutex.try_lock_for(kLong); }), Errc::mn_restarted);
  EXPECT_EQ(code_of([&] { mutex.lock_and_read(old_data, {&word, 1}); }), Errc::mn_restarted);
  mutex.lock();
  EXPECT_EQ(mutex.write_and_unlock(old_data, {&word, 1}).error(), Errc::mn_restarted);
  word = 77;
  EXPECT_TRUE(now.read(data, {&word, 1}));
  EXPECT_EQ(word, 0u) << "it was written";
  EXPECT_TRUE(now.close());
}

// ---------------------------------------------------------------- forked children

void expect_refused_in_child(Cluster& cluster, SharedMutex& mutex) {
  const auto says_why = [](const std::string& text) {
    return text.find("forked after the cluster was opened") != std::string::npos;
  };
  std::uint64_t word = 0;
  EXPECT_EQ(cluster.read({}, {&word, 1}).error(), Errc::closed);
  EXPECT_EQ(cluster.write({}, {&word, 1}).error(), Errc::closed);
  try {
    mutex.lock();
    ADD_FAILURE() << "locked";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), make_error_code(Errc::closed));
    EXPECT_TRUE(says_why(error.what())) << error.what();
  }
  const auto named = cluster.named_lock("x");
  EXPECT_TRUE(!named && says_why(named.error().message));
  const auto client = cluster.client();
  EXPECT_TRUE(!client && says_why(client.error().message));
  EXPECT_TRUE(cluster.stats().tables.empty());
  EXPECT_TRUE(cluster.close());
}

Task<Result<Guard>> take(Client& client, LockRef lock) {
  co_return co_await client.lock(lock);
}

TEST(Forked, AChildLeavesTheScopeOfAClusterWithoutHarm) {
  const std::string uri = fresh_uri();
  Cluster cluster = open(uri);
  auto mutex = std::make_optional<SharedMutex>(cluster, "m");
  std::optional<Client> client = std::move(*cluster.client());
  std::optional<Guard> guard = std::move(*client->run(take(*client, *cluster.named_lock("guarded"))));
  mutex->lock();
  Child child{[&] {
    expect_refused_in_child(cluster, *mutex);
    mutex->unlock();
    mutex.reset();
    guard.reset();
    client.reset();
    { const Cluster last = std::move(cluster); }
#ifndef __SANITIZE_THREAD__  // it has no threads in the child of a process with threads
    Cluster own = open(uri);
    EXPECT_FALSE(own.shared_mutex("m").try_lock()) << "it has unlocked its parent's";
    EXPECT_TRUE(own.close());
#endif
    return testing::Test::HasFailure() ? 1 : 0;
  }};
  EXPECT_EQ(child.wait(), 0);
  EXPECT_FALSE(cluster.evicted());
  mutex->unlock();
  guard.reset();
  client.reset();
  EXPECT_TRUE(cluster.close());
}

}  // namespace
}  // namespace declock::api
