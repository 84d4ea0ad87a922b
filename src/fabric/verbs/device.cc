#include "verbs/device.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace declock::verbs {
namespace {

// Those that this machine has. libibverbs keeps one alive as long as it is open.
class DeviceList {
 public:
  DeviceList() : list_(ibv_get_device_list(&count_)) {}
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (list_ != nullptr) ibv_free_device_list(list_);
  }
  bool empty() const { return list_ == nullptr || count_ == 0; }
  ibv_device** begin() const { return list_; }
  ibv_device** end() const { return list_ + count_; }
  std::string names() const {
    std::string names;
    for (ibv_device* device : *this) names += (names.empty() ? "" : ", ") + std::string{device->name};
    return names;
  }

 private:
  int count_ = 0;
  ibv_device** list_;
};

// What Soft-RoCE calls its vendor. Its timer expires while nothing is lost, and now and then what it repeats then takes
// the number and the answer of an operation before it (Linux 6.1): an atomic that succeeds and has no effect. Better a
// connection that hangs, which ends after the patience of the port that uses it.
constexpr std::uint32_t kSoftRoce = 0xFF'FFFF;

const char* const kNoDevice =
    "there is no verbs device: install an RDMA adapter's driver, or put Soft-RoCE on a network device: "
    "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NAME";

bool is_ipv4(const ibv_gid& gid) {
  static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  return std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
}

std::string text(const ibv_gid& gid) {
  char buffer[INET6_ADDRSTRLEN] = "?";
  const bool v4 = is_ipv4(gid);
  inet_ntop(v4 ? AF_INET : AF_INET6, gid.raw + (v4 ? 12 : 0), buffer, sizeof buffer);
  return buffer;
}

// RoCE v2 can be routed; an IPv4 address is what people configure; a link-local one ends at the next router.
int preference(const ibv_gid_entry& entry) {
  if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) return 0;
  if (is_ipv4(entry.gid)) return 3;
  return entry.gid.raw[0] == 0xFE && entry.gid.raw[1] == 0x80 ? 1 : 2;
}

std::vector<ibv_gid_entry> gids_of(ibv_context* context, int port) {
  // Those of all ports. To ask for more than this at once is refused.
  std::vector<ibv_gid_entry> entries(1024);
  const ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  entries.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  // A queue pair takes an index of one byte.
  std::erase_if(entries, [&](const auto& e) {
    return e.port_num != static_cast<std::uint32_t>(port) || e.gid_index > 255;
  });
  return entries;
}

std::optional<ibv_gid_entry> best_gid(const std::vector<ibv_gid_entry>& gids) {
  const auto best = std::max_element(gids.begin(), gids.end(), [](const auto& a, const auto& b) {
    return preference(a) < preference(b);  // the first of the best
  });
  return best == gids.end() ? std::nullopt : std::optional{*best};
}

// The first one, or that one, if it is active; otherwise 0.
int active_port(ibv_context* context, int wanted, int ports, ibv_port_attr& state) {
  for (int port = 1; port <= ports; ++port) {
    if (wanted != 0 && wanted != port) continue;
    if (ibv_query_port(context, static_cast<std::uint8_t>(port), &state) == 0 &&
        state.state == IBV_PORT_ACTIVE)
      return port;
  }
  return 0;
}

Result<ibv_gid_entry, std::string> choose_gid(const Device& device, int wanted) {
  const std::vector<ibv_gid_entry> gids = gids_of(device.context.get(), device.port);
  if (wanted < 0) {
    if (const auto best = best_gid(gids); best) return *best;
    return Failure{fmt::format("port {} of {} has no GID; give its network device an address",
                               device.port, device.name)};
  }
  std::string known;
  for (const ibv_gid_entry& entry : gids) {
    if (entry.gid_index == static_cast<std::uint32_t>(wanted)) return entry;
    known += fmt::format(" {}={}", entry.gid_index, text(entry.gid));
  }
  return Failure{fmt::format("port {} of {} has no GID with index {}; it has{}", device.port,
                             device.name, wanted, known)};
}

Result<ibv_mtu, std::string> choose_mtu(const Device& device, int wanted, ibv_mtu active) {
  if (wanted == 0) return active;
  const auto bytes = [](int mtu) { return 128 << mtu; };
  for (int mtu = IBV_MTU_256; mtu <= active; ++mtu) {
    if (bytes(mtu) == wanted) return static_cast<ibv_mtu>(mtu);
  }
  return Failure{
      fmt::format("{} bytes are no MTU for port {} of {}; it takes powers of two from 256 to {}",
                  wanted, device.port, device.name, bytes(active))};
}

Result<Device, std::string> use(Context context, const ibv_device_attr& limits, int port,
                                const ibv_port_attr& state, const VerbsConfig& config) {
  Device device;
  device.name = context->device->name;
  device.context = std::move(context);
  device.limits = limits;
  device.port = static_cast<std::uint8_t>(port);
  device.is_ethernet = state.link_layer == IBV_LINK_LAYER_ETHERNET;
  device.lid = state.lid;
  device.message_bytes_max = state.max_msg_sz;
  device.repeats = config.repeats.value_or(limits.vendor_id != kSoftRoce);
  const auto gid = choose_gid(device, config.gid_index);
  if (!gid) return Failure{gid.error()};
  device.gid = gid->gid;
  device.gid_index = static_cast<std::uint8_t>(gid->gid_index);
  const auto mtu = choose_mtu(device, config.mtu, state.active_mtu);
  if (!mtu) return Failure{mtu.error()};
  device.mtu = *mtu;
  if (limits.atomic_cap == IBV_ATOMIC_NONE || limits.max_qp_rd_atom < 1 ||
      limits.max_qp_init_rd_atom < 1)
    return Failure{fmt::format("verbs device {} has no atomic operations; use another", device.name)};
  device.domain.reset(ibv_alloc_pd(device.context.get()));
  if (!device.domain) return Failure{device.error("no protection domain can be made")};
  return device;
}

}  // namespace

std::string Device::error(const std::string& what_failed) const {
  const char* advice =
      errno == ENOMEM ? "; is there memory, and does 'ulimit -l' allow to lock it?" : "";
  return fmt::format("verbs device {}: {}: {}{}", name, what_failed, std::strerror(errno), advice);
}

Result<Device, std::string> Device::open(const VerbsConfig& config) {
  const DeviceList list;
  if (list.empty()) return Failure{std::string{kNoDevice}};
  bool found = false;
  for (ibv_device* candidate : list) {
    if (!config.device.empty() && config.device != candidate->name) continue;
    found = true;
    Context context{ibv_open_device(candidate)};
    ibv_device_attr limits{};
    if (!context || ibv_query_device(context.get(), &limits) != 0) {
      if (config.device.empty()) continue;
      return Failure{fmt::format(
          "verbs device {} cannot be opened: {}; may this user open /dev/infiniband/uverbs*?",
          config.device, std::strerror(errno))};
    }
    if (config.port > limits.phys_port_cnt || config.port < 0) {
      return Failure{fmt::format("verbs device {} has no port {}; its ports are 1 to {}",
                                 candidate->name, config.port, limits.phys_port_cnt)};
    }
    ibv_port_attr state{};
    const int port = active_port(context.get(), config.port, limits.phys_port_cnt, state);
    if (port != 0) return use(std::move(context), limits, port, state, config);
  }
  if (!found) {
    return Failure{fmt::format(
        "there is no verbs device '{}'; there is: {}; name one of them, or none for the first one",
        config.device, list.names())};
  }
  return Failure{fmt::format("no port of {} is active; bring a link up ('rdma link' shows them)",
                             config.device.empty() ? list.names() : config.device)};
}

Result<std::vector<VerbsDevice>, std::string> verbs_devices() {
  const DeviceList list;
  if (list.empty()) return Failure{std::string{kNoDevice}};
  std::vector<VerbsDevice> all;
  for (ibv_device* device : list) {
    const Context context{ibv_open_device(device)};
    ibv_device_attr limits{};
    if (!context || ibv_query_device(context.get(), &limits) != 0) {
      all.push_back({device->name, 0, fmt::format("cannot be opened: {}", std::strerror(errno)), ""});
      continue;
    }
    for (int port = 1; port <= limits.phys_port_cnt; ++port) {
      ibv_port_attr state{};
      if (ibv_query_port(context.get(), static_cast<std::uint8_t>(port), &state) != 0) continue;
      const std::optional<ibv_gid_entry> gid = best_gid(gids_of(context.get(), port));
      const bool active = state.state == IBV_PORT_ACTIVE;
      all.push_back({device->name, port, active ? "active" : ibv_port_state_str(state.state),
                     gid ? text(gid->gid) : ""});
    }
  }
  return all;
}

}  // namespace declock::verbs
