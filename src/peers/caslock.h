// CASLock: the reader-writer spinlock that applications on disaggregated memory mostly use. One word; a
// writer swaps itself in when the word is 0, readers count themselves in with a fetch-and-add.
//
// Two ways for a reader that meets a writer:
//   keep       the count stays, and the reader polls until the writer is gone. Readers come first: a
//   steady
//              stream of them starves writers. (The artifact of the DecLock paper, with one difference:
//              it releases a writer with a loop of compare-and-swaps; one fetch-and-add is enough,
//              since the owner field cannot change under its holder.)
//   take_back  the reader takes its count back and tries again (Ziegler et al.).
//
// No back-off in either. The loops are bounded by nothing but other clients' progress: a spinlock.
#pragma once

#include <cstdint>

#include "lock/lock.h"

namespace declock::peers {

enum class CasReaders : std::uint8_t { keep, take_back };

class CasLock final : public LockClient {
 public:
  // `me` names the client; 0 is nobody.
  CasLock(Endpoint& endpoint, std::uint32_t me, CasReaders readers);

  Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode, Op* object = nullptr) override;
  Task<Result<void>> release(Hold hold, Op* object = nullptr) override;

  FramePool& frames() { return endpoint_.worker().frames(); }

 private:
  Task<Result<Hold>> acquire_exclusive(RemoteAddr lock, Op* object);
  Task<Result<Hold>> acquire_keeping(RemoteAddr lock, Op* object);
  Task<Result<Hold>> acquire_taking_back(RemoteAddr lock, Op* object);

  Endpoint& endpoint_;
  CasReaders readers_;
  std::uint64_t owned_;  // what a writer adds to a free word
};

}  // namespace declock::peers
