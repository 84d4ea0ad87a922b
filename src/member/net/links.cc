#include "member_net/links.h"

#include <algorithm>

namespace declock::member {

bool NetLine::take(const StateIs& whole) {
  if (!whole.state.is_valid()) return false;
  state_ = whole.state;
  return true;
}

bool NetLine::take(const Changed& changed) {
  if (state_.apply(changed.change)) return true;
  send(Fetch{changed.ask, 0, 0});
  return false;
}

// ---------------------------------------------------------------- a compute node's

void NetComputeLink::join(const Join& join) {
  join_ = join;
  say_hello();
}

void NetComputeLink::say_hello() {
  if (!is_up() || given_up_) return;
  if (!self_) {
    if (join_) send(*join_);
    return;
  }
  if (leaving_) return send(Leave{*self_});
  renew();
  send(fetch_of(0));
  for (const std::uint64_t ask : asks_) send(fetch_of(ask));
}

void NetComputeLink::renew() {
  acknowledged_ = seen_;
  send(Renew{*self_, seen_});
}

void NetComputeLink::fetch(std::uint64_t ask) {
  asks_.insert(ask);
  send(fetch_of(ask));
}

// At once where somebody may wait for it to use a slot again; otherwise the next renewal says it.
void NetComputeLink::seen(std::uint64_t number) {
  seen_ = std::max(seen_, number);
  const bool matters = std::any_of(state_.freed.begin(), state_.freed.end(), [&](std::uint64_t freed) {
    return freed > acknowledged_ && freed <= seen_;
  });
  if (matters && self_ && is_up() && !leaving_ && !given_up_) renew();
}

void NetComputeLink::leave() {
  leaving_ = true;
  say_hello();
}

void NetComputeLink::on_tick(Time now) {
  if (!self_ || leaving_ || given_up_ || (now - renewed_).ns < lease_.ns / 4) return;
  renewed_ = now;
  renew();
}

void NetComputeLink::on_up() {
  say_hello();
}

bool NetComputeLink::on_frame(const std::string& frame) {
  const auto handle = [&]<class T>(const T& message) {
    if constexpr (std::is_same_v<T, Joined>) {
      if (!message.state.is_valid() || self_) return;
      self_ = message.self;
      state_ = message.state;
      seen_ = acknowledged_ = state_.number;
      lease_ = message.state.shape.lease;
      events_.on_joined(message.self, message.state);
    } else if constexpr (std::is_same_v<T, StateIs> || std::is_same_v<T, Changed>) {
      if (!self_ || !take(message)) return;
      asks_.erase(message.ask);
      events_.on_state(message.ask, state_);
    } else if constexpr (std::is_same_v<T, Left>) {
      events_.on_left();
    } else if (message.evicted) {
      events_.on_evicted();
    } else {
      events_.on_refused(message.why, message.final);
    }
  };
  return dispatch<Joined, StateIs, Changed, Left, Refused>(frame, handle);
}

void NetComputeLink::on_down(const std::string& why, bool refused) {
  if (!self_) events_.on_refused(why, refused);
}

// ---------------------------------------------------------------- a memory node's

void NetMemoryLink::register_as(std::uint16_t id, const std::string& address,
                                std::uint32_t incarnation) {
  register_.id = id;
  register_.address = address;
  register_.incarnation = incarnation;
  if (is_up()) send(register_);
}

void NetMemoryLink::fetch(std::uint64_t ask) {
  asks_.insert(ask);
  send(fetch_of(ask));
}

void NetMemoryLink::on_up() {
  send(register_);
  for (const std::uint64_t ask : asks_) send(fetch_of(ask));
}

bool NetMemoryLink::on_frame(const std::string& frame) {
  const auto handle = [&]<class T>(const T& message) {
    if constexpr (std::is_same_v<T, Registered>) {
      if (!message.state.is_valid()) return;
      register_.incarnation = message.incarnation;
      register_.cluster = message.state.shape.id;
      state_ = message.state;
      events_.on_registered(message.incarnation, message.state);
    } else if constexpr (std::is_same_v<T, StateIs> || std::is_same_v<T, Changed>) {
      if (!take(message)) return;
      asks_.erase(message.ask);
      events_.on_state(message.ask, state_);
    } else if constexpr (std::is_same_v<T, Fence>) {
      events_.on_fence(message.member);
    } else {
      events_.on_refused(message.why);
    }
  };
  return dispatch<Registered, StateIs, Changed, Fence, Refused>(frame, handle);
}

}  // namespace declock::member
