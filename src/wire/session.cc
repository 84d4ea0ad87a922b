#include "wire/session.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "wire/bytes.h"
#include "wire/socket.h"

namespace declock::wire {
namespace {

constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kProofBytes = 32;
constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kTagBytes = crypto_aead_chacha20poly1305_IETF_ABYTES;
constexpr std::string_view kMagicOfClient = "DecLockC";
constexpr std::string_view kMagicOfServer = "DecLockS";
constexpr std::string_view kMagicOfFull = "DecLockF";
constexpr std::size_t kGreetingBytes = kMagicOfClient.size() + 4;

constexpr std::string_view kOtherSecret = "has another secret; use the same secret file on all nodes";

using FrameNonce = std::array<std::uint8_t, crypto_aead_chacha20poly1305_IETF_NPUBBYTES>;

constexpr Role other(Role role) {
  return role == Role::client ? Role::server : Role::client;
}
constexpr std::string_view magic_of(Role role) {
  return role == Role::client ? kMagicOfClient : kMagicOfServer;
}
constexpr std::string_view proof_of(Role role) {
  return role == Role::client ? "the client's proof" : "the server's proof";
}
constexpr std::string_view frames_of(Role role) {
  return role == Role::client ? "frames of the client" : "frames of the server";
}

const std::uint8_t* raw(std::string_view bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}
std::uint8_t* raw(char* bytes) {
  return reinterpret_cast<std::uint8_t*>(bytes);
}
template <std::size_t N>
std::string_view view(const std::array<std::uint8_t, N>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), N};
}

// A number is used once per key, and a key is for one direction of one session.
FrameNonce nonce_of_frame(std::uint64_t number) {
  FrameNonce nonce{};
  for (std::size_t i = 0; i < sizeof number; ++i) {
    nonce[i] = static_cast<std::uint8_t>(number >> (8 * i));
  }
  return nonce;
}

std::string length_of_frame(std::uint32_t bytes) {
  std::string length;
  Writer{length}.u32(bytes);
  return length;
}

}  // namespace

Session::Session(Role role, const Secret& secret, std::uint32_t version)
    : role_(role), secret_(secret), version_(version), own_nonce_(kNonceBytes, '\0') {
  CHECK(sodium_init() >= 0);
  randombytes_buf(own_nonce_.data(), own_nonce_.size());
  if (role_ == Role::client) {
    greet();
    outgoing_ += own_nonce_;
  }
}

std::string Session::full() {
  std::string said;
  Writer{said}.bytes(kMagicOfFull).u32(kVersion);
  return said;
}

void Session::greet() {
  Writer{outgoing_}.bytes(magic_of(role_)).u32(version_);
}

std::size_t Session::wanted() const {
  switch (stage_) {
    case Stage::greeting:
      return kGreetingBytes;
    case Stage::hello:
      return role_ == Role::client ? kNonceBytes + kProofBytes : kNonceBytes;
    case Stage::proof:
      return kProofBytes;
    case Stage::length:
      return kLengthBytes;
    case Stage::frame:
      return frame_bytes_ + kTagBytes;
    case Stage::over:
      break;
  }
  return 0;
}

Result<void, std::string> Session::feed(std::string_view bytes) {
  while (!bytes.empty() && stage_ != Stage::over) {
    const std::size_t taken = std::min(bytes.size(), wanted() - incoming_.size());
    incoming_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    // At its first wrong byte: a stranger may wait for an answer before it sends more.
    const std::string_view begins{incoming_.data(), std::min(incoming_.size(), kMagicOfFull.size())};
    const bool is_known = magic_of(other(role_)).starts_with(begins) ||
                          (role_ == Role::client && kMagicOfFull.starts_with(begins));
    if (stage_ == Stage::greeting && !is_known) {
      error_ = "is not a DecLock peer; check the host and the port";
    } else if (incoming_.size() == wanted()) {
      error_ = take_message();
      incoming_.clear();
    }
    if (!error_.empty()) stage_ = Stage::over;
  }
  if (stage_ == Stage::over) return Failure{error_};
  return {};
}

std::string Session::take_message() {
  switch (stage_) {
    case Stage::greeting:
      return take_greeting();
    case Stage::hello:
      return take_hello();
    case Stage::proof:
      return take_proof();
    case Stage::length:
      return take_length();
    case Stage::frame:
      return take_frame();
    case Stage::over:
      break;
  }
  return {};
}

std::string Session::take_greeting() {
  Reader reader{incoming_};
  if (reader.bytes(magic_of(role_).size()) == kMagicOfFull) return no_descriptors_left();
  const std::uint32_t version = reader.u32();
  // The client's greeting is out already.
  if (role_ == Role::server) greet();
  if (version != version_) {
    return fmt::format("speaks version {}, this is version {}; use the same release on all nodes",
                       version, version_);
  }
  stage_ = Stage::hello;
  return {};
}

std::string Session::take_hello() {
  Reader reader{incoming_};
  peer_nonce_ = reader.bytes(kNonceBytes);
  if (role_ == Role::server) {
    outgoing_ += own_nonce_;
    outgoing_ += view(derive(proof_of(Role::server)));
    stage_ = Stage::proof;
    return {};
  }
  if (sodium_memcmp(reader.bytes(kProofBytes).data(), derive(proof_of(Role::server)).data(),
                    kProofBytes) != 0) {
    outgoing_.append(kProofBytes, '\0');
    return std::string{kOtherSecret};
  }
  outgoing_ += view(derive(proof_of(Role::client)));
  open_frames();
  return {};
}

std::string Session::take_proof() {
  if (sodium_memcmp(incoming_.data(), derive(proof_of(Role::client)).data(), kProofBytes) != 0) {
    return std::string{kOtherSecret};
  }
  open_frames();
  return {};
}

std::string Session::take_length() {
  frame_bytes_ = Reader{incoming_}.u32();
  if (frame_bytes_ > kFrameMax) {
    return fmt::format(
        "sent a frame of {} bytes, or it was altered on its way; at most {} are accepted: connect "
        "again",
        frame_bytes_, kFrameMax);
  }
  stage_ = Stage::frame;
  return {};
}

std::string Session::take_frame() {
  const std::string length = length_of_frame(frame_bytes_);
  std::string frame(frame_bytes_, '\0');
  if (crypto_aead_chacha20poly1305_ietf_decrypt(
          raw(frame.data()), nullptr, nullptr, raw(incoming_), incoming_.size(), raw(length),
          length.size(), nonce_of_frame(received_).data(), receive_key_.data()) != 0) {
    return "sent a frame that was altered on its way, or repeated; connect again";
  }
  ++received_;
  frames_.push_back(std::move(frame));
  stage_ = Stage::length;
  return {};
}

void Session::open_frames() {
  send_key_ = derive(frames_of(role_));
  receive_key_ = derive(frames_of(other(role_)));
  stage_ = Stage::length;
}

Session::Key Session::derive(std::string_view purpose) const {
  const bool client = role_ == Role::client;
  std::string text;
  Writer{text}
      .string(purpose)
      .u32(version_)
      .bytes(client ? own_nonce_ : peer_nonce_)
      .bytes(client ? peer_nonce_ : own_nonce_);
  Key key;
  CHECK(crypto_generichash(key.data(), key.size(), raw(text), text.size(), secret_.key.data(),
                           secret_.key.size()) == 0);
  return key;
}

std::optional<std::string> Session::next_frame() {
  if (frames_.empty()) return std::nullopt;
  std::string frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

void Session::send(std::string_view frame) {
  if (stage_ == Stage::over) return;
  CHECK(established() && frame.size() <= kFrameMax);
  const std::string length = length_of_frame(static_cast<std::uint32_t>(frame.size()));
  outgoing_ += length;
  const std::size_t at = outgoing_.size();
  outgoing_.resize(at + frame.size() + kTagBytes);
  CHECK(crypto_aead_chacha20poly1305_ietf_encrypt(raw(outgoing_.data() + at), nullptr, raw(frame),
                                                  frame.size(), raw(length), length.size(), nullptr,
                                                  nonce_of_frame(sent_).data(), send_key_.data()) == 0);
  ++sent_;
}

}  // namespace declock::wire
