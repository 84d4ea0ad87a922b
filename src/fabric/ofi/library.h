// libfabric, loaded when a network over TCP is opened and not before. It brings libraries of old adapters with it, which
// take a fifth of a second to load: nobody who uses shared memory, or asks for --help, should wait for that.
#pragma once

#include <rdma/fabric.h>

#include <string>

#include "declock/result.h"

namespace declock::ofi {

// Its functions that are not inline in its headers.
struct Library {
  decltype(&::fi_dupinfo) dupinfo;
  decltype(&::fi_fabric) fabric;
  decltype(&::fi_freeinfo) freeinfo;
  decltype(&::fi_getinfo) getinfo;
  decltype(&::fi_strerror) strerror;
};

// From any thread. An error says what is missing.
Result<const Library*, std::string> load_library();
// REQUIRES: it was loaded.
const Library& library();

}  // namespace declock::ofi
