#include "metrics/exporter.h"

#if DECLOCK_PROMETHEUS

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string_view>
#include <thread>

#include "wire/socket.h"

namespace declock::metrics {
namespace {

prometheus::MetricType type_of(Type type) {
  switch (type) {
    case Type::counter:
      return prometheus::MetricType::Counter;
    case Type::gauge:
      return prometheus::MetricType::Gauge;
    case Type::histogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric translated(const Sample& sample, Type type) {
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
  if (type == Type::counter) metric.counter.value = sample.value;
  if (type == Type::gauge) metric.gauge.value = sample.value;
  if (type == Type::histogram) {
    metric.histogram.sample_count = sample.count;
    metric.histogram.sample_sum = sample.sum_seconds;
    for (const Bucket& b : sample.buckets)
      metric.histogram.bucket.push_back({b.cumulative, b.upper_seconds});
  }
  return metric;
}

class Collector final : public prometheus::Collectable {
 public:
  explicit Collector(Exporter::Collect collect) : collect_(std::move(collect)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    for (const Family& family : collect_()) {
      if (family.samples.empty()) continue;
      prometheus::MetricFamily& f = families.emplace_back();
      f.name = family.name;
      f.help = family.help;
      f.type = type_of(family.type);
      for (const Sample& s : family.samples) f.metric.push_back(translated(s, family.type));
    }
    return families;
  }

 private:
  Exporter::Collect collect_;
};

// The server takes addresses in digits only, and has one error for everything: this listens there first, which tells the
// address and what is wrong with it, and lets go again.
Result<wire::HostPort, std::string> try_listening(const wire::HostPort& at) {
  const Result<int, std::string> listener = wire::listen_on(at);
  if (!listener) return Failure{listener.error()};
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  char host[NI_MAXHOST] = "";
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  const bool known = getsockname(*listener, raw, &bytes) == 0 &&
                     getnameinfo(raw, bytes, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0;
  close(*listener);
  if (!known) return Failure{fmt::format("{} has no address in digits", to_string(at))};
  return wire::HostPort{host, at.port};
}

// Threads that are made meanwhile block all signals; and the server, each of whose threads begins by ignoring SIGPIPE for the
// whole process, does not need that: it asks for no signal where it sends.
class QuietSignals {
 public:
  QuietSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask_);
    sigaction(SIGPIPE, nullptr, &pipe_);
  }
  QuietSignals(const QuietSignals&) = delete;
  QuietSignals& operator=(const QuietSignals&) = delete;
  ~QuietSignals() {
    sigaction(SIGPIPE, &pipe_, nullptr);
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }

 private:
  sigset_t mask_{};
  struct sigaction pipe_ {};
};

}  // namespace

struct Exporter::Server {
  wire::HostPort at;
  std::shared_ptr<Collector> collector;
  std::optional<prometheus::Exposer> exposer;

  Server(const wire::HostPort& where, Collect collect)
      : at(where), collector(std::make_shared<Collector>(std::move(collect))) {
    // One thread that answers: two would race in gmtime(). Who connects and says nothing holds it up no longer than that.
    exposer.emplace(std::vector<std::string>{"listening_ports", to_string(at), "num_threads", "1",
                                             "request_timeout_ms", "3000"});
    exposer->RegisterCollectable(collector);
    const std::vector<int> ports = exposer->GetListeningPorts();
    if (!ports.empty()) at.port = static_cast<std::uint16_t>(ports.front());
    await_threads();
  }

  // One accepts, another answers: once it has, both have begun.
  void await_threads() const {
    const Result<int, std::string> asks = wire::connect_to(at);
    if (!asks) return;
    constexpr std::string_view kNothing = "GET / HTTP/1.0\r\n\r\n";
    constexpr timeval kLong{.tv_sec = 5, .tv_usec = 0};
    char answer = 0;
    fcntl(*asks, F_SETFL, 0);  // it blocks
    setsockopt(*asks, SOL_SOCKET, SO_RCVTIMEO, &kLong, sizeof kLong);
    if (send(*asks, kNothing.data(), kNothing.size(), MSG_NOSIGNAL) > 0)
      (void)recv(*asks, &answer, 1, 0);
    close(*asks);
  }

  // Its listener looks every two seconds whether it should end, or when somebody comes: somebody comes.
  ~Server() {
    std::atomic<bool> ended{false};
    std::jthread knocker{[&] {
      while (!ended) {
        const Result<int, std::string> knock = wire::connect_to(at);
        if (knock) close(*knock);
        usleep(2000);
      }
    }};
    exposer.reset();
    ended = true;
  }
};

Result<std::unique_ptr<Exporter>, std::string> Exporter::open(const std::string& host_port,
                                                              Collect collect) {
  const Result<wire::HostPort, std::string> asked = wire::parse_host_port(host_port);
  if (!asked) return Failure{"metrics: " + asked.error()};
  const Result<wire::HostPort, std::string> at = try_listening(*asked);
  if (!at) return Failure{"metrics: " + at.error()};
  const QuietSignals quiet;
  try {
    auto server = std::make_unique<Server>(*at, std::move(collect));
    const std::uint16_t port = server->at.port;
    return std::unique_ptr<Exporter>{new Exporter{std::move(server), port}};
  } catch (const std::exception& error) {
    return Failure{fmt::format("metrics: {} cannot be served: {}", host_port, error.what())};
  }
}

Exporter::Exporter(std::unique_ptr<Server> server, std::uint16_t port)
    : server_(std::move(server)), port_(port) {}

Exporter::~Exporter() = default;

}  // namespace declock::metrics

#else

namespace declock::metrics {

struct Exporter::Server {};

Result<std::unique_ptr<Exporter>, std::string> Exporter::open(const std::string&, Collect) {
  return Failure{std::string{
      "metrics: this build has no Prometheus endpoint; install prometheus-cpp and build it with "
      "-DDECLOCK_PROMETHEUS=ON"}};
}

Exporter::Exporter(std::unique_ptr<Server> server, std::uint16_t port)
    : server_(std::move(server)), port_(port) {}

Exporter::~Exporter() = default;

}  // namespace declock::metrics

#endif
