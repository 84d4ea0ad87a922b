// A session with ZooKeeper: what is ephemeral lives as long as the session in which it was made.
//
// Every call waits for its answer, at most about as long as the session's time-out. Used from one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "declock/result.h"
#include "member_zk/zk_url.h"
#include "wire/secret.h"

struct _zhandle;  // ZooKeeper's own

namespace declock::member {

enum class ZkFault : std::uint8_t {
  missing,    // there is no such node
  exists,     // there is one already
  conflict,   // it has another version
  forbidden,  // it belongs to somebody with another secret
  malformed,  // no version of this program that we know of has written it
  unknown,    // anything else; what was asked for may or may not have happened, or may yet
};

template <class T>
using ZkResult = Result<T, ZkFault>;

struct ZkNode {
  std::string data;
  std::int32_t version = 0;
  std::int64_t owner = 0;  // the session in which it was made, if it is ephemeral
};

class ZkSession {
 public:
  // `on_event`: something that was read has changed, or the session has. Called by a thread of ZooKeeper's, which must
  // not wait; not called any more after close().
  ZkSession(const ZkAddress& at, const wire::Secret& secret, std::function<void()> on_event);
  ZkSession(const ZkSession&) = delete;
  ZkSession& operator=(const ZkSession&) = delete;
  ~ZkSession() { close(); }

  // The servers' own limit for what a node holds and what is said about it, unless somebody changes it on all of them.
  static constexpr int kDataMax = 1 << 20;

  const ZkAddress& address() const { return at_; }

  // There is a connection, in a session with this time-out. If not, one is being made, and on_event() tells when; a
  // session with another time-out is replaced by a new one, but one that is_lost() only after close().
  bool ready(Duration timeout);
  // It was ended by ZooKeeper: what was ephemeral in it is gone.
  bool is_lost() const;
  // No server can be found, or none has answered since it began, for longer than its time-out.
  bool is_unanswered() const;
  // What was ephemeral in it is gone at once, if a server can be reached.
  void close();

  // Of the current session. REQUIRES: it was ready().
  std::int64_t id() const;
  const std::string& name() const { return name_; }  // random
  Duration timeout() const;                          // as the servers want it

  // All paths are relative to the cluster's. Reading tells of the next change, by on_event().
  ZkResult<ZkNode> get(const std::string& path);
  ZkResult<std::set<std::string>> children(const std::string& path);
  ZkResult<void> create(const std::string& path, const std::string& data);
  ZkResult<void> create_ephemeral(const std::string& path, const std::string& data);
  ZkResult<void> set(const std::string& path, const std::string& data,
                     std::int32_t version);  // -1: any
  ZkResult<void> remove(const std::string& path);
  // The cluster's own path, and those above it.
  ZkResult<void> make_root();

 private:
  static void heard(_zhandle* handle, int type, int state, const char* path, void* self);
  void open(Duration timeout);
  std::string full(const std::string& path) const { return at_.path() + "/" + path; }

  ZkAddress at_;
  std::string password_;
  std::function<void()> on_event_;
  _zhandle* handle_ = nullptr;
  std::string name_;
  Duration wanted_{};
  Time opened_{};
  bool was_answered_ = false;
  bool has_password_ = false;  // the handle
  std::vector<char> buffer_ = std::vector<char>(kDataMax);
};

}  // namespace declock::member
