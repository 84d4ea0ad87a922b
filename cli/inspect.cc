// declock inspect: what the words of a lock say.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/futex.h"
#include "client/seeing.h"
#include "commands.h"
#include "exit_codes.h"
#include "looks/lock_state.h"
#include "output.h"
#include "visit.h"

namespace declock::cli {
namespace {

using Json = nlohmann::ordered_json;

// Between two looks: less than the 32 ms for which a timestamp tells its age.
constexpr Duration kApart = milliseconds(25);

struct InspectOptions {
  std::string uri;
  std::string lock;
  std::string json;
};

// A memory node that never was there, or a place outside of its memory, gives no answer, over a network.
constexpr unsigned kReadSecondsMax = 5;

std::vector<std::uint64_t> read(Cluster& cluster, RemoteAddr at, std::size_t words) {
  std::vector<std::uint64_t> read(words);
  const Result<void> done = cluster.read(at, read);
  if (!done)
    throw CannotRun(fmt::format("{} cannot be read: {}", looks::to_text(at), to_string(done.error())));
  return read;
}

looks::LockWords words_of(Cluster& cluster, const InspectOptions& options) {
  const Result<LockRef, Error> found = client::find_lock(cluster, options.lock);
  if (!found) throw BadInput(found.error().message);
  looks::LockWords words{.name = options.lock,
                         .at = found->at,
                         .members = static_cast<std::uint32_t>((cluster.lock_bytes() - 16) / 8)};
  end_on_alarm(
      "declock: the lock was not read within 5 s: is its memory node running, and the address inside "
      "its "
      "memory?\n");
  alarm(kReadSecondsMax);
  const std::size_t all = words.members + std::size_t{2};
  words.before = read(cluster, words.at, all);
  const Time before = monotonic_now();
  usleep(static_cast<useconds_t>(kApart.ns / 1000));
  words.queue = read(cluster, words.at, all);
  alarm(0);
  words.apart = Duration{(monotonic_now() - before).ns / 1'000'000 * 1'000'000};
  // On one machine all have the same clock.
  if (options.uri.starts_with("shm:") && words.apart < milliseconds(32))
    words.now = timestamp_of(monotonic_now());
  words.wraps = words.queue.back();
  words.queue.pop_back();
  words.before.pop_back();
  return words;
}

Json to_json(const looks::Request& r) {
  const char* standing = r.standing == looks::Standing::holds   ? "holding"
                         : r.standing == looks::Standing::waits ? "waiting"
                                                                : "unknown";
  Json json{{"ticket", r.ticket.value}, {"standing", standing}};
  json["mode"] = r.mode ? Json(*r.mode == Mode::exclusive ? "exclusive" : "shared") : Json{};
  json["slot"] = r.slot ? Json(r.slot->value) : Json{};
  if (r.entry) json["worker"] = r.entry->worker.value;
  if (r.age) json[r.is_older ? "older_than_ns" : "age_ns"] = r.age->ns;
  return json;
}

Json to_json(const looks::LockWords& words) {
  const looks::LockState state = looks::decode(words);
  const Header& h = state.header;
  Json json{{"lock", words.name},
            {"address", looks::to_text(words.at)},
            {"members", words.members},
            {"is", looks::headline(state)},
            {"header",
             {{"word", fmt::format("{:#018x}", words.queue[0])},
              {"ticket", h.ticket.value},
              {"qsize", h.qsize},
              {"wcnt", h.wcnt},
              {"epoch", h.epoch.value},
              {"reset_id", h.reset_id.value}}},
            {"wraps", words.wraps},
            {"queue", Json::array()},
            {"stale", Json::array()}};
  for (const looks::Request& r : state.queue) json["queue"].push_back(to_json(r));
  for (const looks::StaleEntry& s : state.stale) {
    json["stale"].push_back(
        {{"slot", s.slot.value}, {"ticket", s.entry.tag}, {"epoch", s.entry.epoch.value}});
  }
  return json;
}

int run(const InspectOptions& options) {
  ResultFile json{options.json};
  Cluster cluster = visit(options.uri);
  const looks::LockWords words = words_of(cluster, options);
  if (!json.is_standard_output()) fmt::print("{}", looks::describe(words));
  json.write(to_json(words).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  (void)cluster.close();
  return kFine;
}

}  // namespace

Action add_inspect(Command program) {
  Command app = program.add_command(
      "inspect", "One lock: who holds it, who waits, and what every field of it means");
  auto options = std::make_shared<InspectOptions>();
  app.add_option("URI", options->uri, "The cluster: shm:NAME, tcp://HOST:PORT?secret=FILE, ..")
      .required();
  app.add_option("LOCK", options->lock,
                 "A name (orders/42), an entry of a table (orders[17]), or an address (mn0+0x1000)")
      .required();
  app.add_option("--json", options->json, "The same as JSON; -: to standard output, instead")
      .type_name("FILE");
  return [options] { return run(*options); };
}

}  // namespace declock::cli
