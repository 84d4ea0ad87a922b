#include <fmt/format.h>

#include <optional>

#include "explore/search.h"

namespace declock::explore {
namespace {

std::string_view mode_name(Mode mode) {
  return mode == Mode::exclusive ? "exclusive" : "shared";
}

// Words of a lock, for a person: decoded if they are a CQL lock's, otherwise as numbers.
class Narrator {
 public:
  explicit Narrator(const Scenario& scenario) : decodes_(scenario.has_queue()) {
    if (decodes_) shape_.emplace(scenario.shape());
  }

  std::string header(std::uint64_t word) const {
    if (!decodes_) return fmt::format("{:#x}", word);
    const Header h = shape_->header.decode(word);
    return fmt::format("ticket {}, qsize {}, wcnt {}", h.ticket.value, h.qsize, h.wcnt);
  }

  static std::string_view state_of(WorkerId worker) {
    if (worker == kWatching) return ", watching";
    return worker == kGranted || worker == kGrantedLast ? ", granted" : "";
  }

  std::string entry(std::uint64_t word) const {
    const Entry e = decode_entry(word);
    if (word == 0) return "nothing";
    if (!decodes_) return fmt::format("{:#x}", word);
    if (shape_->queue == QueueLayout::owner)
      return fmt::format("ticket {} {}{}", e.tag, mode_name(e.mode), state_of(e.worker));
    const RingTag tag = RingTag::unpack(e.tag);
    return fmt::format("version {} client {} {}", tag.version - 1, tag.owner.value, mode_name(e.mode));
  }

  std::string place(const sim::Flight::Step& step) const {
    if (step.purpose == Purpose::data) return "the object";
    const std::uint64_t word = step.addr.offset / 8;
    return word == 0 ? "the header" : fmt::format("slot {}", word - 1);
  }

  // A word of the lock or of the object.
  std::string word_at(const sim::Flight::Step& step, std::uint64_t word) const {
    if (step.purpose == Purpose::data) return fmt::to_string(word);
    return step.addr.offset == 0 ? header(word) : entry(word);
  }

  static std::string_view name(const sim::Flight::Step& step) {
    switch (step.kind) {
      case OpKind::read:
        return "READ";
      case OpKind::write:
        return "WRITE";
      case OpKind::fetch_add:
        return "FAA";
      case OpKind::compare_swap:
        return "CAS";
      case OpKind::masked_compare_swap:
        return "masked CAS";
    }
    return "?";
  }

  std::string effect(const sim::Flight::Step& step, const sim::Memory& memory) const {
    if (step.kind == OpKind::read) return fmt::format("READ of {} begins", place(step));
    const std::uint64_t now = memory.load(step.addr.offset);
    if (step.kind == OpKind::write) {
      return fmt::format("WRITE takes effect: {} held {}, now {}", place(step), word_at(step, now),
                         word_at(step, step.from[0]));
    }
    std::uint64_t then = now + step.operand;
    if (step.kind != OpKind::fetch_add) {
      const bool hit = ((now ^ step.expected) & step.compare_mask) == 0;
      then = hit ? (now & ~step.swap_mask) | (step.operand & step.swap_mask) : now;
    }
    return fmt::format("{} {} takes effect: {} -> {}", to_string(step.purpose), name(step),
                       word_at(step, now), word_at(step, then));
  }

  std::string posted(const sim::Flight& flight) const {
    std::string text;
    for (std::size_t i = 0; i < flight.count; ++i) {
      const sim::Flight::Step& step = flight.steps[i];
      text += text.empty() ? "" : " + ";
      if (step.purpose == Purpose::data) {
        text += fmt::format("{} of the object", name(step));
      } else if (step.kind == OpKind::read) {
        text += step.words > 1 ? "READ of the queue" : "READ of the lock";
      } else if (step.kind == OpKind::write) {
        text += fmt::format("WRITE of its entry ({})", entry(step.from[0]));
      } else {
        text += fmt::format("{} {}", to_string(step.purpose), name(step));
      }
      if (step.purpose == Purpose::refetch) text += " once more";
    }
    return fmt::format("posts {}", text);
  }

  std::string completion(const sim::SteppedEngine& engine, const sim::Choice& choice) const {
    if (engine.is_unknown(choice)) return "hears that its outcome is unknown";
    const sim::Flight& flight = engine.oldest_flight(choice.who);
    std::string text;
    for (std::size_t i = 0; i < flight.count; ++i) {
      const sim::Flight::Step& step = flight.steps[i];
      text += text.empty() ? "" : "; ";
      if (step.kind == OpKind::read) {
        const std::vector<std::uint64_t> words = engine.would_see(choice, i);
        text += step.purpose == Purpose::data ? fmt::format("READ sees the object as {}", words[0])
                                              : "READ sees " + queue(words);
      } else if (step.kind == OpKind::write) {
        text += "WRITE completes";
      } else {
        text += fmt::format("{} returns {}", name(step), word_at(step, step.old));
      }
    }
    return text;
  }

  std::string letter(const sim::Letter& letter) const {
    if (!decodes_) return fmt::format("message {:#x}", letter.message.words[1]);
    switch (cql::kind_of(letter.message)) {
      case cql::MessageKind::grant:
        return fmt::format("grant of ticket {}",
                           cql::Grant::from_message(letter.message).key.ticket.value);
      case cql::MessageKind::signal:
        return "signal of a reset";
      case cql::MessageKind::answer:
        return "answer to a reset";
      case cql::MessageKind::question:
        return "question about a reset";
      case cql::MessageKind::inquiry:
        return "question what the lock waits for";
      case cql::MessageKind::reply:
        return fmt::format(
            "reply that says {}",
            cql::RoundMessage::from_message(letter.message).part == 0 ? "not for me" : "for me");
      case cql::MessageKind::token:
        return turn("token", letter.message);
      case cql::MessageKind::phase:
        return turn("phase of readers", letter.message);
      case cql::MessageKind::done:
        return turn("end of a phase", letter.message);
    }
    return "?";
  }

 private:
  static std::string turn(std::string_view what, const Message& message) {
    const auto turn = cql::TurnMessage::from_message(message);
    return fmt::format("{} for ticket {}, hop {}", what, turn.key.ticket.value, turn.hop);
  }

  std::string queue(const std::vector<std::uint64_t>& words) const {
    std::string text = "(" + header(words[0]) + ")";
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i] != 0) text += fmt::format(" slot {} ({})", i - 1, entry(words[i]));
    }
    return text;
  }

  bool decodes_;
  std::optional<LockShape> shape_;
};

// What `choice` does, without its consequences. `party`: what has an endpoint.
std::string what_happens(const Narrator& narrator, sim::SteppedEngine& engine, std::string_view party,
                         const sim::Choice& choice) {
  switch (choice.kind) {
    case sim::Choice::Kind::effect:
      return narrator.effect(engine.next_step(choice.who), engine.memory(MnId{0}));
    case sim::Choice::Kind::deliver:
      return fmt::format("{} arrives from {} {}", narrator.letter(engine.next_letter(choice)), party,
                         choice.who);
    case sim::Choice::Kind::lose:
    case sim::Choice::Kind::repeat:
      return fmt::format(
          "{} from {} {} {}", narrator.letter(engine.next_letter(choice)), party, choice.who,
          choice.kind == sim::Choice::Kind::lose ? "is lost" : "arrives for the first time");
    case sim::Choice::Kind::resume:
      return choice.who >= World::kQuestion     ? "is told the current view"
             : choice.who >= World::kImpatience ? "loses patience"
             : choice.who >= World::kCall       ? "calls for the lock"
                                                : "ends its critical section";
    case sim::Choice::Kind::timer:
      return "timer fires";
    case sim::Choice::Kind::complete:
      return narrator.completion(engine, choice);
    case sim::Choice::Kind::reconnect:
      return "has a new connection to the memory node";
    case sim::Choice::Kind::sever:
      return "loses its connection to the memory node";
    case sim::Choice::Kind::restart:
      return "restarts, with fresh memory";
    case sim::Choice::Kind::crash:
      return "crashes";
    case sim::Choice::Kind::remove:
      return "is fenced and removed from the view";
    case sim::Choice::Kind::tell:
      return "hears of the current view";
    case sim::Choice::Kind::leave:
      return "leaves the cluster";
    case sim::Choice::Kind::join:
      return "joins";
    case sim::Choice::Kind::reset:
      return "resets the lock for nothing";
  }
  return "?";
}

// Who does it, or whom it happens to.
std::string subject_of(const sim::Choice& choice, std::string_view party) {
  using Kind = sim::Choice::Kind;
  switch (choice.kind) {
    case Kind::restart:
      return "memory node";
    case Kind::resume:
      return choice.who >= World::kQuestion ? fmt::format("{} {}", party, choice.who % kClientsMax)
                                            : fmt::format("client {}", choice.who % kClientsMax);
    case Kind::deliver:
    case Kind::lose:
    case Kind::repeat:
      return fmt::format("{} {}", party, choice.to);
    default:
      return fmt::format("{} {}", party, choice.who);
  }
}

}  // namespace

std::vector<std::string> tell_story(const Scenario& scenario, const Finding& finding) {
  const Narrator narrator{scenario};
  // Clients of one node share its endpoint, which is all that a step of the network can name.
  const std::string_view party = scenario.hierarchical() ? "node" : "client";
  World world{scenario};
  world.restart();
  sim::SteppedEngine& engine = world.engine();

  std::string consequences;
  const auto add = [&](std::string_view what) {
    consequences += consequences.empty() ? " -> " : ", ";
    consequences += what;
  };
  world.told = add;
  engine.posted = [&](const sim::Flight& flight) { add(narrator.posted(flight)); };
  engine.sent = [&](const sim::Letter& letter) {
    add(fmt::format("sends {} {} a {}", party, letter.to.value, narrator.letter(letter)));
  };

  std::vector<std::string> lines;
  for (const sim::Choice& choice : finding.path) {
    const std::string what = what_happens(narrator, engine, party, choice);
    consequences.clear();
    world.perform(choice);
    lines.push_back(
        fmt::format("{:3}. {}: {}{}", lines.size() + 1, subject_of(choice, party), what, consequences));
  }
  lines.push_back(
      fmt::format("     {}: {}", to_string(finding.violation->kind), finding.violation->text));
  return lines;
}

}  // namespace declock::explore
