// Owners of what libibverbs gives out. Whatever was made with the help of something else must go before it: members are
// declared in the order in which they are made.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "base/check.h"

namespace declock::verbs {

template <auto destroy>
struct Destroy {
  // A failure would mean that something still depends on it, and that the network may go on using it.
  template <class T>
  void operator()(T* object) const {
    CHECK(destroy(object) == 0);
  }
};
template <class T, auto destroy>
using Handle = std::unique_ptr<T, Destroy<destroy>>;

using Context = Handle<ibv_context, ibv_close_device>;
using ProtectionDomain = Handle<ibv_pd, ibv_dealloc_pd>;
using Channel = Handle<ibv_comp_channel, ibv_destroy_comp_channel>;
using CompletionQueue = Handle<ibv_cq, ibv_destroy_cq>;
using SharedReceiveQueue = Handle<ibv_srq, ibv_destroy_srq>;
using Region = Handle<ibv_mr, ibv_dereg_mr>;
using Qp = Handle<ibv_qp, ibv_destroy_qp>;

}  // namespace declock::verbs
