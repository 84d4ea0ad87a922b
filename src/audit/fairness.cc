#include "audit/fairness.h"

#include "base/check.h"

namespace declock::audit {

void Fairness::called(std::size_t lock, std::uint32_t client, Mode mode) {
  requests_[client] = {first_[lock], mode, lock, ++clock_, 0};
  first_[lock] = client;
}

void Fairness::enqueued(std::uint32_t client) {
  Request& request = requests_[client];
  if (request.queue_order == 0) request.queue_order = ++clock_;
}

Fairness::Overtakes Fairness::granted(std::uint32_t client) {
  const Request& mine = requests_[client];
  Overtakes overtakes;
  std::uint32_t* own_link = nullptr;
  for (std::uint32_t* link = &first_[mine.lock]; *link != kNobody; link = &requests_[*link].next) {
    if (*link == client) {
      own_link = link;
      continue;
    }
    const Request& other = requests_[*link];
    if (!conflict(mine.mode, other.mode)) continue;
    if (other.call_order < mine.call_order) overtakes.by_call += 1;
    if (other.queue_order != 0 && other.queue_order < mine.queue_order) overtakes.by_queue += 1;
  }
  CHECK(own_link != nullptr);
  *own_link = mine.next;
  return overtakes;
}

}  // namespace declock::audit
