// Grants: one message hands a lock over. It names (lock, epoch, ticket), and a waiter takes only its
// own.
#pragma once

#include <coroutine>
#include <cstdint>
#include <optional>

#include "cql/rules.h"
#include "fabric/fabric.h"
#include "layout/ids.h"

namespace declock::cql {

// Names one wait.
struct GrantKey {
  RemoteAddr lock;
  Epoch epoch;
  Ticket ticket;

  constexpr bool operator==(const GrantKey&) const = default;
};

struct Grant {
  GrantKey key;
  // When the first of those who still wait asked, as far as the releaser could see.
  std::optional<Timestamp> waiting_since;

  Message to_message() const {
    const std::uint64_t since = waiting_since ? 1 + std::uint64_t{waiting_since->value} : 0;
    return {{key.lock.packed(), key.epoch.value | since << 8, key.ticket.value}};
  }
  static Grant from_message(const Message& m) {
    const std::uint64_t since = m.words[1] >> 8;
    Grant grant{{RemoteAddr::unpack(m.words[0]), Epoch{static_cast<std::uint8_t>(m.words[1])},
                 Ticket{m.words[2]}},
                {}};
    if (since != 0) grant.waiting_since = Timestamp{static_cast<std::uint16_t>(since - 1)};
    return grant;
  }
};

// The waits of one endpoint. Any number of its coroutines may wait, each for another lock.
template <Rules kRules>
class GrantInbox final : public Receiver {
 public:
  // Expects one grant from its construction on; co_await it. Must exist before its entry is written:
  // the grant may come before the WRITE's completion.
  class Wait {
   public:
    Wait(GrantInbox& inbox, const GrantKey& awaited) : inbox_(inbox), awaited_(awaited) {
      next_ = inbox.first_;
      inbox.first_ = this;
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    ~Wait() {
      Wait** link = &inbox_.first_;
      while (*link != this) link = &(*link)->next_;
      *link = next_;
    }

    bool await_ready() const noexcept { return granted_; }
    void await_suspend(std::coroutine_handle<> waiter) noexcept { waiter_ = waiter; }
    std::optional<Timestamp> await_resume() const noexcept { return waiting_since_; }

   private:
    friend class GrantInbox;
    GrantInbox& inbox_;
    GrantKey awaited_;
    std::optional<Timestamp> waiting_since_;
    Wait* next_;
    bool granted_ = false;
    std::coroutine_handle<> waiter_;
  };

  // H20: a grant that nobody awaits belonged to a wait that a reset aborted: ignored, never released.
  void on_message(EndpointId, const Message& message) override {
    const Grant grant = Grant::from_message(message);
    for (Wait* wait = first_; wait != nullptr; wait = wait->next_) {
      const bool meant =
          kRules.tickets_match ? wait->awaited_ == grant.key : wait->awaited_.lock == grant.key.lock;
      if (!meant || wait->granted_) continue;
      wait->granted_ = true;
      wait->waiting_since_ = grant.waiting_since;
      if (wait->waiter_) wait->waiter_.resume();  // may end the wait: touch nothing after this
      return;
    }
  }

 private:
  Wait* first_ = nullptr;
};

}  // namespace declock::cql
