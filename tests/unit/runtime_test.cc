#include <gtest/gtest.h>

#include "lock/lock.h"
#include "runtime/thread_worker.h"
#include "support/lab.h"
#include "support/soon.h"

namespace declock {
namespace {

Task<int> add(Worker&, int a, int b) {
  co_return a + b;
}

Task<void> sum_to(Worker& worker, int n, int& sum) {
  for (int i = 1; i <= n; ++i) sum = co_await add(worker, sum, i);
}

TEST(Task, RunsItsChildrenInOrderAndGivesTheirValues) {
  Lab lab{1};
  int sum = 0;
  lab.start(sum_to(lab.nodes[0].worker, 100, sum));
  EXPECT_TRUE(lab.all_done());
  EXPECT_EQ(sum, 5050);
}

Task<void> sleeper(Worker& worker, Duration d, bool& woke) {
  co_await worker.sleep_for(d);
  woke = true;
}

TEST(Task, DestroyedWhileItSleepsNeverWakes) {
  Lab lab{1};
  bool woke = false;
  {
    Task<void> task = sleeper(lab.nodes[0].worker, microseconds(5), woke);
    task.start();
  }
  lab.run(milliseconds(1));
  EXPECT_FALSE(woke);
}

// To look is to handle what has arrived, as over a network.
class LookingWorker final : public ThreadWorker {
 public:
  LookingWorker() : ThreadWorker(Prng{1, 1}, word_) {}
  std::coroutine_handle<> arriving;
  bool is_looking = false;

 private:
  bool poll() override { return false; }
  bool anything_arrived() const override {
    auto* self = const_cast<LookingWorker*>(this);
    if (is_looking && arriving) self->make_ready(std::exchange(self->arriving, {}));
    return false;
  }
  Time look_again() const override { return kNever; }
  void on_away(Time) override {}
  BellWord word_{static_cast<std::uint32_t>(Bell::away)};
};

struct Arrival {
  LookingWorker& worker;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> me) const { worker.arriving = me; }
  void await_resume() const noexcept {}
};

Task<void> await_arrival(LookingWorker& worker, bool& arrived) {
  co_await Arrival{worker};
  arrived = true;
}

TEST(ThreadWorker, DoesNotSleepOnWhatBecameReadyWhileItLooked) {
  LookingWorker worker;
  bool arrived = false;
  bool gave_up = false;
  Task<void> waits, alarm;
  worker.run_until([&] {
    if (!worker.is_looking) {
      waits = await_arrival(worker, arrived);
      waits.start();
      alarm = sleeper(worker, kHangs, gave_up);
      alarm.start();
      worker.is_looking = true;
    }
    return arrived || gave_up;
  });
  EXPECT_TRUE(arrived);
  waits = {};
  alarm = {};
}

TEST(FramePool, GivesAlignedBlocksOfAnySizeAndReusesThem) {
  FramePool pool;
  std::vector<void*> blocks;
  for (const std::size_t size : {1u, 48u, 49u, 500u, 5000u, 60000u}) {
    void* block = pool.allocate(size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 16, 0u);
    std::fill_n(static_cast<char*>(block), size, 'x');
    blocks.push_back(block);
  }
  for (void* block : blocks) FramePool::deallocate(block);
  EXPECT_DEATH(pool.allocate(1 << 20), "invariant broken");
}

// No allocator call on the acquire/release path once the worker has run for a while.
TEST(FramePool, AcquiringAndReleasingDoesNotCallTheAllocator) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "under the address sanitizer every frame is a fresh one";
#endif
  Lab lab{2};
  Visit first;
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::exclusive, {}, first));
  lab.run(milliseconds(1));
  lab.tasks.clear();
  const std::uint64_t warm = lab.nodes[0].worker.frames().system_allocations();
  for (int i = 0; i < 100; ++i) {
    Visit again;
    lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::shared, {}, again));
    lab.run(milliseconds(1));
    EXPECT_TRUE(again.left);
    lab.tasks.clear();
  }
  EXPECT_EQ(lab.nodes[0].worker.frames().system_allocations(), warm);
}

TEST(Doorbell, ThatIsCompleteAlreadyCostsNoSuspension) {
  Lab lab{1};
  std::uint64_t word = 0;
  Op read = Op::read(Lab::kLock, {&word, 1}, Purpose::data);
  const Doorbell bell = lab.nodes[0].endpoint.post(read);
  EXPECT_FALSE(bell.await_ready());
  lab.run(microseconds(10));
  EXPECT_TRUE(bell.await_ready());
  EXPECT_TRUE(bell.await_resume());
}

Task<void> add_one(Worker&, Endpoint& endpoint) {
  Op add = Op::fetch_add(Lab::kLock, 1, Purpose::data);
  const Result<void> posted = co_await endpoint.post(add);
  EXPECT_TRUE(posted);
}

TEST(Doorbell, OfACoroutineThatIsGoneStillTakesEffect) {
  Lab lab{1};
  {
    Task<void> task = add_one(lab.nodes[0].worker, lab.nodes[0].endpoint);
    task.start();
  }
  lab.run(microseconds(10));
  EXPECT_EQ(lab.engine.memory(MnId{0}).load(0), 1u);
}

}  // namespace
}  // namespace declock
