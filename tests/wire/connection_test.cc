// Connections over real sockets.
#include "wire/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "support/soon.h"
#include "wire/pair.h"

namespace declock::wire {
namespace {

// One poll of a connection; what handle() says, "" if it says nothing.
std::string turn(Connection& connection, int timeout_ms = 10) {
  pollfd polled{connection.descriptor(), connection.wanted_events(), 0};
  poll(&polled, 1, timeout_ms);
  const auto handled = connection.handle(polled.revents);
  return handled ? "" : handled.error();
}

// With which it ends.
std::string error_of(Connection& connection) {
  std::string error;
  (void)soon([&] {
    error = turn(connection);
    return !error.empty();
  });
  return error;
}

// A client and a server on the loopback interface.
class ConnectionTest : public testing::Test {
 protected:
  void connect(Session client, Session server, const HostPort& at = {"127.0.0.1", 0}) {
    const auto listener = listen_on(at);
    ASSERT_TRUE(listener) << listener.error();
    const HostPort there{at.host, local_port(*listener)};
    const auto connecting = connect_to(there);
    ASSERT_TRUE(connecting) << connecting.error();
    client_ = std::make_unique<Connection>(*connecting, std::move(client), to_string(there));
    pollfd polled{*listener, POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, kHangs.ns / 1'000'000), 1);
    const int accepted = accept_from(*listener);
    ASSERT_GE(accepted, 0);
    EXPECT_EQ(accept_from(*listener), -1) << "nobody else";
    server_ = std::make_unique<Connection>(accepted, std::move(server));
    for (const int descriptor : {*listener, *connecting, accepted}) {
      EXPECT_TRUE(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
      EXPECT_TRUE(fcntl(descriptor, F_GETFL) & O_NONBLOCK);
    }
    close(*listener);
  }
  void establish(const HostPort& at = {"127.0.0.1", 0}) {
    connect(Session{Role::client, secret_of(1)}, Session{Role::server, secret_of(1)}, at);
    std::string error;
    ASSERT_TRUE(soon([&] {
      error = turn(*client_) + turn(*server_);
      return !error.empty() || (client_->established() && server_->established());
    }));
    ASSERT_EQ(error, "");
  }
  // The errors with which both end.
  std::pair<std::string, std::string> end() {
    std::pair<std::string, std::string> errors;
    (void)soon([&] {
      errors = {turn(*client_), turn(*server_)};
      return !errors.first.empty() && !errors.second.empty();
    });
    return errors;
  }

  std::unique_ptr<Connection> client_;
  std::unique_ptr<Connection> server_;
};

TEST_F(ConnectionTest, CarriesFramesBothWays) {
  for (const std::string host : {"127.0.0.1", "::1", "localhost"}) {
    if (host == "::1" && !listen_on({host, 0})) continue;  // a machine without IPv6
    establish({host, 0});
    const std::string large(kFrameMax, 'l');
    constexpr std::size_t kFrames = 8;  // more than a socket takes at once
    for (std::size_t i = 0; i < kFrames; ++i) client_->send(large);
    server_->send("welcome");
    EXPECT_GT(client_->unsent(), 0u);
    std::size_t got = 0;
    std::optional<std::string> answer;
    std::string error;
    (void)soon([&] {
      error = turn(*client_, 0) + turn(*server_, 0);
      while (const auto frame = server_->next_frame()) {
        EXPECT_EQ(*frame, large);
        ++got;
      }
      if (!answer) answer = client_->next_frame();
      return !error.empty() || (got == kFrames && answer);
    });
    EXPECT_EQ(error, "");
    EXPECT_EQ(got, kFrames);
    EXPECT_EQ(answer, "welcome");
    EXPECT_EQ(client_->unsent(), 0u);
    const std::string bracketed = host == "::1" ? "[::1]:" : host + ':';
    EXPECT_TRUE(client_->peer().starts_with(bracketed)) << client_->peer();
  }
  EXPECT_EQ(server_->peer(), "127.0.0.1:" + std::to_string(local_port(client_->descriptor())));
}

TEST_F(ConnectionTest, BothSidesHearOfAnotherSecret) {
  connect(Session{Role::client, secret_of(1)}, Session{Role::server, secret_of(2)});
  const auto [client, server] = end();
  EXPECT_EQ(client, client_->peer() + " has another secret; use the same secret file on all nodes");
  EXPECT_EQ(server, server_->peer() + " has another secret; use the same secret file on all nodes");
}

TEST_F(ConnectionTest, BothSidesHearOfAnotherVersion) {
  connect(Session{Role::client, secret_of(1), 2}, Session{Role::server, secret_of(1), 1});
  const auto [client, server] = end();
  EXPECT_EQ(client, client_->peer() +
                        " speaks version 1, this is version 2; use the same release on all nodes");
  EXPECT_EQ(server, server_->peer() +
                        " speaks version 2, this is version 1; use the same release on all nodes");
}

TEST_F(ConnectionTest, APeerThatClosesLeavesItsLastFramesAndAnError) {
  establish();
  client_->send("last");
  const std::string name = server_->peer();
  client_.reset();
  const std::string error = error_of(*server_);
  EXPECT_EQ(error, name + " closed the connection");
  EXPECT_EQ(server_->next_frame(), "last");
  EXPECT_FALSE(server_->established());
  server_->send("to nobody");
  EXPECT_EQ(server_->unsent(), 0u);
  EXPECT_EQ(turn(*server_), error) << "again";
}

TEST_F(ConnectionTest, SendingToAPeerThatHasClosedIsReportedByHandle) {
  establish();
  client_.reset();
  for (int i = 0; i < 10; ++i) server_->send("is anybody there?");
  const std::string error = error_of(*server_);
  EXPECT_EQ(error, server_->peer() + " closed the connection");
}

TEST_F(ConnectionTest, APeerThatClosesInTheMiddleIsReported) {
  for (const std::size_t cut : {0u, 5u, 44u, 60u}) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    Connection server{ends[0], Session{Role::server, secret_of(1)}};
    const std::string hello = Side{Role::client}.say() + std::string(16, 'p');
    ASSERT_EQ(::write(ends[1], hello.data(), cut), static_cast<ssize_t>(cut));
    EXPECT_EQ(turn(server, 0), "");
    close(ends[1]);
    EXPECT_EQ(turn(server),
              "an unknown peer closed the connection in the handshake; what it reports may say why");
  }
}

TEST_F(ConnectionTest, APeerThatSaysNothingCostsNothing) {
  connect(Session{Role::client, secret_of(1)}, Session{Role::server, secret_of(1)});
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(turn(*server_, 0), "");
    EXPECT_EQ(server_->unsent(), 0u);
    EXPECT_EQ(server_->wanted_events(), POLLIN) << "a loop must sleep";
  }
  EXPECT_FALSE(server_->established());
  for (int i = 0; i < 50; ++i) EXPECT_EQ(turn(*client_, 0), "");
  EXPECT_EQ(client_->unsent(), 0u);
  EXPECT_EQ(client_->wanted_events(), POLLIN);
}

TEST_F(ConnectionTest, AStrangerIsRefused) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Connection server{ends[0], Session{Role::server, secret_of(1)}, "somebody"};
  ASSERT_EQ(::write(ends[1], "GET /", 5), 5);
  EXPECT_EQ(turn(server), "somebody is not a DecLock peer; check the host and the port");
  close(ends[1]);
}

TEST_F(ConnectionTest, MovesWithItsDescriptor) {
  establish();
  Connection moved{std::move(*client_)};
  client_.reset();
  moved.send("still here");
  std::optional<std::string> frame;
  (void)soon([&] {
    const std::string error = turn(*server_);
    frame = server_->next_frame();
    return !error.empty() || frame;
  });
  EXPECT_EQ(frame, "still here");
}

TEST(Socket, APortWithNobodyBehindItRefuses) {
  // Bound, so that nobody else gets it; and nobody listens.
  const int bound = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(bound, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const HostPort at{"127.0.0.1", local_port(bound)};
  std::string error;
  if (const auto connecting = connect_to(at)) {
    Connection client{*connecting, Session{Role::client, secret_of(1)}, to_string(at)};
    error = error_of(client);
  } else {
    error = connecting.error();
  }
  EXPECT_EQ(error, to_string(at) + " refused the connection; is a DecLock node running there?");
  close(bound);
}

TEST(Socket, SaysWhyItCannotListen) {
  const auto taken = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(taken);
  const HostPort at{"127.0.0.1", local_port(*taken)};
  EXPECT_EQ(listen_on(at).error(),
            to_string(at) + " is taken by another program; stop that one, or choose another port");
  EXPECT_EQ(listen_on({"192.0.2.1", 7000}).error(),
            "192.0.2.1:7000 is not an address of this machine; choose one that `ip address` shows, or "
            "0.0.0.0 for all");
  const auto unknown = listen_on({"no-such-host.invalid", 7000});
  ASSERT_FALSE(unknown);
  EXPECT_TRUE(unknown.error().starts_with("no-such-host.invalid: has no address: ")) << unknown.error();
  close(*taken);
}

TEST(Socket, HostsAndPortsAreReadStrictly) {
  EXPECT_EQ(*parse_host_port("node1:7000"), (HostPort{"node1", 7000}));
  EXPECT_EQ(*parse_host_port("10.0.0.1:0"), (HostPort{"10.0.0.1", 0}));
  EXPECT_EQ(*parse_host_port("[fe80::1%eth0]:65535"), (HostPort{"fe80::1%eth0", 65535}));
  EXPECT_EQ(to_string(*parse_host_port("[::1]:7000")), "[::1]:7000");
  for (const std::string text :
       {"", "node1", "node1:", ":7000", "[]:7000", "::1:7000", "[::1:7000", "[::1]", "[node1]:7000",
        "node1:65536", "node1:-1", "node1:+1", "node1:70 ", "node1:7x", "no de:7", "[[::1]]:7"}) {
    const auto parsed = parse_host_port(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_TRUE(parsed.error().starts_with('\'' + text + "': ")) << parsed.error();
    EXPECT_TRUE(
        parsed.error().ends_with("write HOST:PORT, as in node1:7000, 10.0.0.1:7000 or [fd00::1]:7000"));
  }
}

}  // namespace
}  // namespace declock::wire
