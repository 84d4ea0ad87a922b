// A fabric under test: a few compute nodes, each with one worker and one endpoint, and what a test may do to them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "member/membership.h"

namespace declock::conformance {

// A node's work. Runs on its worker; what it refers to must stay until then.
using Script = std::function<Task<void>(Endpoint& endpoint, member::Membership& membership)>;

class Stage {
 public:
  virtual ~Stage() = default;

  // Runs a script per node, all at the same time, to the end of those that are not killed. A script whose node is
  // marked as a victim runs where it can be killed without warning.
  virtual void run(std::vector<Script> scripts) = 0;
  // Of memory node 0, from outside, between runs and during them.
  virtual std::uint64_t look(std::uint64_t offset) = 0;

  // Makes this node a victim: the next run() kills it as soon as `when`, asked from outside, says so. Or, if it is to live,
  // cuts it off from whoever decides who is a member, and from nobody else.
  struct Victim {
    std::size_t node;
    std::function<bool()> when;
    bool lives = false;
  };
  virtual void set_victim(Victim victim) = 0;

  // What not every fabric has. A test that needs it is skipped where it is missing.
  enum class Can { remove_the_living, break_memory, break_peers };
  virtual bool can(Can) const { return false; }
  // From a script: breaks the connections to memory node 0, with what is under way on them.
  virtual void break_memory() {}
  // From a script: breaks the connections between compute nodes, both of whose ends live. How many there were.
  virtual std::size_t break_peers() { return 0; }
  // The next connection may be made.
  virtual void mend() {}
};

// "sim", "shm", "tcp" or "verbs". With so many nodes.
std::unique_ptr<Stage> make_stage(const std::string& fabric, std::uint32_t nodes);
// Why this machine has no such fabric; empty: it has.
std::string why_not(const std::string& fabric);

}  // namespace declock::conformance
