// A reliable connection's end. It is made, says in a card how to reach it, and is connected with the other end's card.
#pragma once

#include "verbs/card.h"
#include "verbs/device.h"

namespace declock::verbs {

// Without a queue pair.
Card card_of(const Device& device, Card::Kind kind);

class QueuePair {
 public:
  struct Config {
    ibv_cq* sends = nullptr;     // where completions go
    ibv_cq* receives = nullptr;  // the same
    ibv_srq* inbox = nullptr;    // where messages come from
    std::uint32_t depth = 1;     // work requests under way
    unsigned access = 0;         // what the other end may do
  };
  static Result<QueuePair, std::string> make(const Device& device, const Config& config);

  // What the other end must know.
  Card card(Card::Kind kind) const;
  std::uint32_t number() const { return qp_->qp_num; }

  // REQUIRES: the card was read.
  Result<void, std::string> listen(const Card& other);
  // Listens as well.
  Result<void, std::string> talk(const Card& other);
  // False: nobody knows what of it was posted.
  bool post(ibv_send_wr& first);
  // From now on nothing that arrives is looked at, and nothing is sent.
  void stop();

 private:
  QueuePair(const Device& device, Qp qp);
  Result<void, std::string> modify(ibv_qp_attr& attributes, int mask, const char* to);

  const Device* device_;
  Qp qp_;
  std::uint32_t first_packet_;
  std::uint8_t reads_;  // how many the other end may have under way here, or this one there
};

}  // namespace declock::verbs
