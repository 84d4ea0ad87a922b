// The talk of two processes that share a secret: frames that nobody else can read, alter, repeat or leave out.
//
//   client                                            server
//   "DecLockC" version nonce             ->
//                                        <-           "DecLockS" version nonce proof
//   proof                                ->
//   frame ...                            <->          frame ...
//
// A proof is a hash, keyed with the secret, of who proves, the version and both nonces: both are fresh, so an old one is
// worth nothing. The server proves itself first. A client that does not believe it answers with zeros: that tells the
// server what is wrong, and tells an impostor nothing about the secret. Who speaks another version answers with
// its own and stops, so both sides know. A server that has no room answers with "DecLockF" and its version.
//
// A frame is its length (u32), then its bytes and a tag of 16, encrypted with ChaCha20-Poly1305. There is a key for
// each direction, made as the proofs are; the nonce is the number of the frame, and the length is authenticated too.
//
// It does no input or output of its own; Connection does, over TCP.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "declock/result.h"
#include "wire/secret.h"

namespace declock::wire {

inline constexpr std::uint32_t kVersion = 4;
inline constexpr std::size_t kFrameMax = 1 << 20;

enum class Role : std::uint8_t { client, server };

class Session {
 public:
  Session(Role role, const Secret& secret, std::uint32_t version = kVersion);
  Session(Session&&) = default;
  Session& operator=(Session&&) = default;

  // What is to be sent; the owner takes from its front what it has sent. It goes on after an error: the peer has to
  // hear of it. Grows with send() alone, beyond the few bytes of the handshake.
  std::string& outgoing() { return outgoing_; }
  const std::string& outgoing() const { return outgoing_; }

  // What has arrived, in pieces of any size. An error is one line that says what the peer does, without its name
  // ("has another secret; ..."); then the session is over, and every later call gives the same.
  Result<void, std::string> feed(std::string_view bytes);

  // What a server says that has no room for a session.
  static std::string full();

  // The frames that have arrived, in order; also those from before an error. What waits here is bounded by what the
  // owner feeds before it takes them.
  std::optional<std::string> next_frame();

  // Nothing happens if the session is over. REQUIRES: it was established; at most kFrameMax bytes.
  void send(std::string_view frame);

  // The peer has proven that it has the secret, and the session is not over.
  bool established() const { return stage_ == Stage::length || stage_ == Stage::frame; }
  // It ended with an error.
  bool refused() const { return stage_ == Stage::over; }

 private:
  using Key = std::array<std::uint8_t, 32>;
  // What arrives next.
  enum class Stage : std::uint8_t { greeting, hello, proof, length, frame, over };

  // For the fuzzer, which starts from the same established session a million times. Two copies must never both send:
  // they would use a nonce twice.
  friend struct SessionCopies;
  Session(const Session&) = default;

  std::size_t wanted() const;
  // What is wrong with the message that has arrived in full, if something is.
  std::string take_message();
  std::string take_greeting();
  std::string take_hello();
  std::string take_proof();
  std::string take_length();
  std::string take_frame();

  void greet();
  void open_frames();
  Key derive(std::string_view purpose) const;

  Role role_;
  Secret secret_;
  std::uint32_t version_;
  std::string own_nonce_;
  std::string peer_nonce_;

  Stage stage_ = Stage::greeting;
  std::string error_;
  std::string incoming_;  // never more than wanted()
  std::string outgoing_;
  std::deque<std::string> frames_;

  std::uint32_t frame_bytes_ = 0;
  Key send_key_{};
  Key receive_key_{};
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace declock::wire
