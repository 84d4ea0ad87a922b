#include "member_zk/zk_session.h"

#define THREADED
#include <sodium.h>
#include <zookeeper/zookeeper.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "base/futex.h"

namespace declock::member {
namespace {

std::string hex(const unsigned char* bytes, std::size_t count) {
  std::string text(2 * count + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes, count);
  text.pop_back();
  return text;
}

ZkFault fault_of(int code) {
  switch (code) {
    case ZNONODE:
      return ZkFault::missing;
    case ZNODEEXISTS:
      return ZkFault::exists;
    case ZBADVERSION:
      return ZkFault::conflict;
    case ZNOAUTH:
      return ZkFault::forbidden;
    default:
      return ZkFault::unknown;
  }
}

ZkResult<void> result_of(int code) {
  if (code != ZOK) return Failure{fault_of(code)};
  return {};
}

int length(const std::string& data) {
  return static_cast<int>(data.size());
}

}  // namespace

ZkSession::ZkSession(const ZkAddress& at, const wire::Secret& secret, std::function<void()> on_event)
    : at_(at), on_event_(std::move(on_event)) {
  CHECK(sodium_init() >= 0);
  static_assert(sizeof secret.key == crypto_kdf_KEYBYTES);
  // The servers see the password: it must not be the secret itself.
  std::array<unsigned char, 32> derived{};
  CHECK(crypto_kdf_derive_from_key(derived.data(), derived.size(), 1, "zookeepr", secret.key.data()) ==
        0);
  password_ = "declock:" + hex(derived.data(), derived.size());
}

void ZkSession::heard(zhandle_t*, int, int, const char*, void* self) {
  static_cast<ZkSession*>(self)->on_event_();
}

void ZkSession::open(Duration timeout) {
  close();
  std::array<unsigned char, 16> random{};
  randombytes_buf(random.data(), random.size());
  name_ = hex(random.data(), random.size());
  wanted_ = timeout;
  opened_ = monotonic_now();
  was_answered_ = false;
  has_password_ = false;
  handle_ = zookeeper_init2(at_.servers.c_str(), &heard, static_cast<int>(timeout.ns / 1'000'000),
                            nullptr, this, ZOO_NO_LOG_CLIENTENV, [](const char*) {});
  // Otherwise the servers' names are looked up whenever something is sent or received.
  if (handle_ != nullptr) (void)zoo_set_servers_resolution_delay(handle_, 10'000);
}

bool ZkSession::ready(Duration timeout) {
  if (handle_ == nullptr || (timeout != wanted_ && !is_lost())) open(timeout);
  if (handle_ == nullptr) return false;  // not even a name could be looked up: next time, perhaps
  // Taken once, it is the first that is sent on every connection. Not taken between two attempts to connect.
  if (!has_password_)
    has_password_ =
        zoo_add_auth(handle_, "digest", password_.c_str(), length(password_), nullptr, nullptr) == ZOK;
  const bool is_connected = has_password_ && zoo_state(handle_) == ZOO_CONNECTED_STATE;
  was_answered_ = was_answered_ || is_connected;
  return is_connected;
}

bool ZkSession::is_lost() const {
  return handle_ != nullptr && is_unrecoverable(handle_) == ZINVALIDSTATE;
}

bool ZkSession::is_unanswered() const {
  return handle_ == nullptr || (!was_answered_ && monotonic_now() - opened_ > wanted_);
}

void ZkSession::close() {
  if (handle_ != nullptr) (void)zookeeper_close(std::exchange(handle_, nullptr));
}

std::int64_t ZkSession::id() const {
  return zoo_client_id(handle_)->client_id;
}

Duration ZkSession::timeout() const {
  return milliseconds(zoo_recv_timeout(handle_));
}

// ---------------------------------------------------------------- nodes

ZkResult<ZkNode> ZkSession::get(const std::string& path) {
  int read = kDataMax;
  Stat stat{};
  const int code = zoo_get(handle_, full(path).c_str(), 1, buffer_.data(), &read, &stat);
  if (code != ZOK) return Failure{fault_of(code)};
  if (read < 0 || stat.dataLength > kDataMax) return Failure{ZkFault::malformed};
  return ZkNode{{buffer_.data(), static_cast<std::size_t>(read)}, stat.version, stat.ephemeralOwner};
}

ZkResult<std::set<std::string>> ZkSession::children(const std::string& path) {
  String_vector names{};
  const int code = zoo_get_children(handle_, full(path).c_str(), 1, &names);
  if (code != ZOK) return Failure{fault_of(code)};
  std::set<std::string> found{names.data, names.data + names.count};
  deallocate_String_vector(&names);
  return found;
}

ZkResult<void> ZkSession::create(const std::string& path, const std::string& data) {
  return result_of(zoo_create(handle_, full(path).c_str(), data.data(), length(data),
                              &ZOO_CREATOR_ALL_ACL, ZOO_PERSISTENT, nullptr, 0));
}

ZkResult<void> ZkSession::create_ephemeral(const std::string& path, const std::string& data) {
  return result_of(zoo_create(handle_, full(path).c_str(), data.data(), length(data),
                              &ZOO_CREATOR_ALL_ACL, ZOO_EPHEMERAL, nullptr, 0));
}

ZkResult<void> ZkSession::set(const std::string& path, const std::string& data, std::int32_t version) {
  return result_of(zoo_set(handle_, full(path).c_str(), data.data(), length(data), version));
}

ZkResult<void> ZkSession::remove(const std::string& path) {
  return result_of(zoo_delete(handle_, full(path).c_str(), -1));
}

ZkResult<void> ZkSession::make_root() {
  // Shared by clusters with different secrets: anybody may add one, nobody may touch another's.
  std::array<ACL, 2> grants{ACL{ZOO_PERM_READ | ZOO_PERM_CREATE, ZOO_ANYONE_ID_UNSAFE},
                            ACL{ZOO_PERM_ALL, ZOO_AUTH_IDS}};
  const ACL_vector shared{static_cast<std::int32_t>(grants.size()), grants.data()};
  const int above = zoo_create(handle_, "/declock", nullptr, -1, &shared, ZOO_PERSISTENT, nullptr, 0);
  if (above != ZOK && above != ZNODEEXISTS) return Failure{fault_of(above)};
  const int own = zoo_create(handle_, at_.path().c_str(), nullptr, -1, &ZOO_CREATOR_ALL_ACL,
                             ZOO_PERSISTENT, nullptr, 0);
  if (own != ZOK && own != ZNODEEXISTS) return Failure{fault_of(own)};
  return {};
}

}  // namespace declock::member
