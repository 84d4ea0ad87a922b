// An exporter for Prometheus: answers GET /metrics with what a function collects at that moment.
//
// Two threads of its own, one that listens and one that answers. They block all signals: handlers run on the threads of
// the application.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "declock/result.h"
#include "metrics/family.h"

namespace declock::metrics {

class Exporter {
 public:
  using Collect = std::function<std::vector<Family>()>;

  // At HOST:PORT; port 0: any that is free. `collect` is called from the exporter's thread, until the exporter
  // is destroyed. An error has one line that says what was wrong and what is accepted.
  static Result<std::unique_ptr<Exporter>, std::string> open(const std::string& host_port,
                                                             Collect collect);
  ~Exporter();  // waits for the answer under way; who is in the line behind gets none

  std::uint16_t port() const { return port_; }

 private:
  struct Server;
  Exporter(std::unique_ptr<Server> server, std::uint16_t port);

  std::unique_ptr<Server> server_;
  std::uint16_t port_;
};

}  // namespace declock::metrics
