// Completions of what was sent, and what is told of them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "verbs/device.h"

namespace declock::verbs {

// What has arrived and was not yet told. Whoever is told may come back for more: everything is told once, in order.
template <class T>
class Untold {
 public:
  bool empty() const { return items_.empty(); }
  void add(T item) { items_.push_back(std::move(item)); }
  // What is added meanwhile waits for the next time. True: there was something.
  template <class Tell>
  bool tell(Tell tell) {
    const bool any = !empty();
    for (std::size_t left = items_.size() - next_; left > 0 && next_ < items_.size(); --left) {
      T item = std::move(items_[next_++]);
      tell(item);
    }
    if (next_ == items_.size()) {
      items_.clear();
      next_ = 0;
    }
    return any;
  }

 private:
  std::vector<T> items_;
  std::size_t next_ = 0;
};

// The completion queue of senders that come and go; the name of each work request is the address of its sender. A sender
// that is done with stays until no completion can name it any more.
template <class Sender>
class SendCompletions {
 public:
  static Result<SendCompletions, std::string> make(const Device& device, ibv_comp_channel* channel) {
    const int size = std::min(kSizeMax, device.limits.max_cqe);
    SendCompletions made;
    made.queue_.reset(ibv_create_cq(device.context.get(), size, nullptr, channel, 0));
    if (!made.queue_) return Failure{device.error("no completion queue can be made")};
    made.room_ = made.all_ = static_cast<std::size_t>(size);
    return made;
  }

  ibv_cq* queue() const { return queue_.get(); }

  // Every work request may yet complete with an error, whether it asked for a completion or not, and a queue that
  // overflows is lost: none is posted without room for that.
  bool take_room(std::size_t requests) {
    if (requests > room_) return false;
    room_ -= requests;
    return true;
  }
  void give_room(std::size_t requests) { room_ += requests; }

  // REQUIRES: its queue pair is destroyed; so many of its requests have not completed.
  void bury(std::unique_ptr<Sender> sender, std::size_t requests) {
    graves_.push_back({std::move(sender), requests});
  }

  // Calls each(sender, status) for some completions. True: there were any.
  template <class Each>
  bool collect(Each each) {
    if (room_ == all_ && graves_.empty()) return false;
    const std::size_t old_graves = graves_.size();
    std::array<ibv_wc, 32> found;
    const int count = ibv_poll_cq(queue_.get(), static_cast<int>(found.size()), found.data());
    CHECK(count >= 0);
    for (int i = 0; i < count; ++i) {
      const ibv_wc& one = found[static_cast<std::size_t>(i)];
      each(*std::bit_cast<Sender*>(one.wr_id), one.status);
    }
    // Empty: it holds nothing of those who went before.
    if (count == 0) {
      for (std::size_t i = 0; i < old_graves; ++i) room_ += graves_[i].requests;
      graves_.erase(graves_.begin(), graves_.begin() + static_cast<std::ptrdiff_t>(old_graves));
    }
    return count > 0;
  }

 private:
  static constexpr int kSizeMax = 8192;
  struct Grave {
    std::unique_ptr<Sender> sender;
    std::size_t requests;
  };

  CompletionQueue queue_;
  std::size_t all_ = 0;
  std::size_t room_ = 0;
  std::vector<Grave> graves_;
};

}  // namespace declock::verbs
