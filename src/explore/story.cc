#include <fmt/format.h>

#include "explore/search.h"

namespace declock::explore {
namespace {

std::string_view mode_name(Mode mode) {
  return mode == Mode::exclusive ? "exclusive" : "shared";
}

// Words of a CQL lock, for a person.
class Narrator {
 public:
  explicit Narrator(const Scenario& scenario) : shape_(scenario.shape()) {}

  std::string header(std::uint64_t word) const {
    const Header h = shape_.header.decode(word);
    return fmt::format("ticket {}, qsize {}, wcnt {}", h.ticket.value, h.qsize, h.wcnt);
  }

  std::string entry(std::uint64_t word) const {
    const Entry e = decode_entry(word);
    if (word == 0) return "nothing";
    if (shape_.queue == QueueLayout::owner)
      return fmt::format("ticket {} {}", e.tag, mode_name(e.mode));
    const RingTag tag = RingTag::unpack(e.tag);
    return fmt::format("version {} client {} {}", tag.version - 1, tag.owner.value, mode_name(e.mode));
  }

  std::string place(RemoteAddr addr) const {
    const std::uint64_t word = addr.offset / 8;
    return word == 0 ? "the header" : fmt::format("slot {}", word - 1);
  }

  std::string effect(const sim::Flight::Step& step, const sim::Memory& memory) const {
    const std::uint64_t now = memory.load(step.addr.offset);
    if (step.kind == OpKind::write) {
      return fmt::format("WRITE takes effect: {} held {}, now {}", place(step.addr), entry(now),
                         entry(step.from[0]));
    }
    return fmt::format("{} FAA takes effect: {} -> {}", to_string(step.purpose), header(now),
                       header(now + step.operand));
  }

  std::string posted(const sim::Flight& flight) const {
    std::string text;
    for (std::size_t i = 0; i < flight.count; ++i) {
      const sim::Flight::Step& step = flight.steps[i];
      text += text.empty() ? "" : " + ";
      switch (step.kind) {
        case OpKind::read:
          text += "READ of the queue";
          break;
        case OpKind::write:
          text += fmt::format("WRITE of its entry ({})", entry(step.from[0]));
          break;
        default:
          text += fmt::format("{} FAA", to_string(step.purpose));
      }
      if (step.purpose == Purpose::refetch) text += " once more";
    }
    return fmt::format("posts {}", text);
  }

  std::string completion(const sim::SteppedEngine& engine, const sim::Choice& choice) const {
    const sim::Flight& flight = engine.oldest_flight(choice.who);
    std::string text;
    for (std::size_t i = 0; i < flight.count; ++i) {
      const sim::Flight::Step& step = flight.steps[i];
      text += text.empty() ? "" : "; ";
      switch (step.kind) {
        case OpKind::read:
          text += "READ sees " + queue(engine.would_see(choice, i));
          break;
        case OpKind::write:
          text += "WRITE completes";
          break;
        default:
          text += fmt::format("FAA returns {}", header(step.old));
      }
    }
    return text;
  }

  static std::string letter(const sim::Letter& letter) {
    const cql::Grant grant = cql::Grant::from_message(letter.message);
    return fmt::format("grant of ticket {}", grant.key.ticket.value);
  }

 private:
  std::string queue(const std::vector<std::uint64_t>& words) const {
    std::string text = "(" + header(words[0]) + ")";
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i] != 0) text += fmt::format(" slot {} ({})", i - 1, entry(words[i]));
    }
    return text;
  }

  LockShape shape_;
};

}  // namespace

std::vector<std::string> tell_story(const Scenario& scenario, const Finding& finding) {
  const Narrator narrator{scenario};
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
    add(fmt::format("sends client {} a {}", letter.to.value, Narrator::letter(letter)));
  };

  std::vector<std::string> lines;
  for (const sim::Choice& choice : finding.path) {
    std::string what;
    std::uint32_t who = choice.who;
    switch (choice.kind) {
      case sim::Choice::Kind::effect:
        what = narrator.effect(engine.next_step(choice.who), engine.memory(MnId{0}));
        break;
      case sim::Choice::Kind::deliver:
        what = fmt::format("{} arrives from client {}", Narrator::letter(engine.next_letter(choice)),
                           choice.who);
        who = choice.to;
        break;
      case sim::Choice::Kind::resume:
        what = "ends its critical section";
        break;
      case sim::Choice::Kind::timer:
        what = "timer fires";
        break;
      case sim::Choice::Kind::complete:
        what = narrator.completion(engine, choice);
        break;
    }
    consequences.clear();
    engine.perform(choice);
    lines.push_back(fmt::format("{:3}. client {}: {}{}", lines.size() + 1, who, what, consequences));
  }
  lines.push_back(
      fmt::format("     {}: {}", to_string(finding.violation->kind), finding.violation->text));
  return lines;
}

}  // namespace declock::explore
