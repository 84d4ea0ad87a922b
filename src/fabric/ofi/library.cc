#include "ofi/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <csignal>
#include <mutex>
#include <optional>

#include "base/check.h"

namespace declock::ofi {
namespace {

constexpr const char* kName = "libfabric.so.1";

// A library behind libfabric, that of an old adapter, takes the handlers of these signals when it is loaded, prints, and
// ends the process with status 1. They stay as they were.
class KeepSignals {
 public:
  KeepSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      CHECK(sigaction(kSignals[i], nullptr, &were_[i]) == 0);
  }
  KeepSignals(const KeepSignals&) = delete;
  KeepSignals& operator=(const KeepSignals&) = delete;
  ~KeepSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) (void)sigaction(kSignals[i], &were_[i], nullptr);
  }

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE};
  std::array<struct sigaction, kSignals.size()> were_{};
};

// One per process, as what is loaded is.
struct Loaded {
  std::once_flag once;
  Library library{};
  std::optional<std::string> error;
};
Loaded& loaded() {
  static Loaded loaded;
  return loaded;
}

void load(Loaded& into) {
  void* handle = nullptr;
  {
    const KeepSignals keep;
    handle = dlopen(kName, RTLD_NOW | RTLD_LOCAL);  // never closed: its threads may outlive everybody
  }
  if (handle == nullptr) {
    into.error = fmt::format("{} cannot be loaded ({}); apt-get install libfabric1", kName, dlerror());
    return;
  }
  const auto find = [&](auto& function, const char* name) {
    void* const at = dlsym(handle, name);
    if (at == nullptr)
      into.error = fmt::format("{} has no function {}; 1.17 or later is needed", kName, name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(at);
  };
  find(into.library.dupinfo, "fi_dupinfo");
  find(into.library.fabric, "fi_fabric");
  find(into.library.freeinfo, "fi_freeinfo");
  find(into.library.getinfo, "fi_getinfo");
  find(into.library.strerror, "fi_strerror");
}

}  // namespace

Result<const Library*, std::string> load_library() {
  Loaded& all = loaded();
  std::call_once(all.once, [&] { load(all); });
  if (all.error) return Failure{*all.error};
  return &all.library;
}

const Library& library() {
  const auto found = load_library();
  CHECK(found);
  return **found;
}

}  // namespace declock::ofi
