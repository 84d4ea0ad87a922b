#include "figures/claims.h"

namespace declock::bench::figures {

std::string_view reason_of(int number) {
  switch (number) {
    case 1:
    case 21:
      return "At Zipf 0.99 the hottest of 100,000 locks takes 7.8 % of all requests, so at long "
             "sections whoever holds it limits "
             "everybody, under any lock; the paper's locks must meet less of that. ShiftLock here is "
             "at full strength: its hand-over "
             "is one message, that of DecLock as published a round trip and a message. With slack and "
             "one doorbell DecLock is ahead "
             "of it at sections of 0 and 1 and level at 2 (see Beyond).";
    case 3:
    case 29:
      return "ShiftLock at full strength does not fill this NIC, so its sections stay short and its "
             "tail with them.";
    case 7:
    case 8:
    case 10:
    case 34:
      return "Fitted by three numbers of the model, all six rows together; what is left is the "
             "compromise.";
    case 14:
      return "What the synchronisation leaves, over three rounds. The model's clocks also drift by up "
             "to 1 us per second each way, so two of "
             "them may be 2 us further apart just before the next round.";
    case 15:
      return "With 24 clients on one CN the NIC is idle, and every lock takes one operation to "
             "acquire: they are nearly level here. "
             "The paper's gaps must be work of its clients' CPUs, which the model prices alike for all "
             "locks.";
    case 16:
    case 19:
      return "Fitted for CASLock and DSLR+; ShiftLock at full strength polls rarely enough not to fill "
             "this NIC.";
    case 17:
      return "The order that TF and PF keep makes 7 of 8 hand-overs remote with 8 CNs, and 1 of 2 with "
             "2 CNs. A remote one costs a "
             "round trip and a message, and the hottest lock is the limit. Ours, with slack, stays at "
             "its peak.";
    case 18:
    case 23:
      return "The paper compares with a port of ShiftLock of its own. At full strength, as here, "
             "ShiftLock hands over with one "
             "message and nothing else, and is ahead of DecLock-PF as published but where nearly all "
             "read. Ours is ahead of it at "
             "short sections.";
    case 22:
      return "With few reads CASLock collapses less here than in the paper, and DSLR+ more.";
    case 25:
    case 26:
      return "PF is limited by the hottest lock here, which more locks relieve: a Zipf distribution "
             "over 10^7 locks gives the first "
             "a share of 5.5 %, over 10^5 7.8 %, over 10^3 13 %. The paper's PF seems to be limited by "
             "something else.";
    case 27:
      return "They end ahead of DecLock where nobody waits: as published its release always READs the "
             "queue, 3 lock operations "
             "instead of 2 at a NIC that is full. Ours READs only where somebody may wait, and is "
             "level with them.";
    case 28:
      return "The median request meets no contention. It is slow under CASLock and DSLR+ because the "
             "NIC is full of retries: less so "
             "than in the paper for DSLR+, which retries less here at long sections, and not at all "
             "for ShiftLock at full strength.";
    case 30:
      return "PF lets readers pass writers, and at 50 % reads the writers' longer waits are the tail "
             "at any length of section.";
    case 32:
      return "TS-PF has the longer tail, which are its writers (row 30). Local-prefer and local-bound "
             "keep the lock on a node for "
             "longer, and have half the median of the timestamps at 0 %. At 90 % every policy that "
             "admits all local readers with one "
             "shared grant is alike, and without hierarchy each of 256 clients has a slot, a release "
             "READs 2 KB, and the link is full.";
    case 33:
      return "An entry is written a round trip after the fetch-and-add. Sections without any data "
             "operation, and 1,000 locks, leave "
             "less time than that more often; at the defaults it is within the paper's bound.";
    case 35:
      return "Better: a CN answers one signal for all of its clients, so a reset is flat in the "
             "clients and grows with the CNs alone.";
    case 43:
    case 44:
      return "The hottest lock's chain of hand-overs limits the throughput here, and a message is part "
             "of every link, so slower "
             "messages show in full. One message instead of two is still the smaller loss.";
    default:
      return "";
  }
}

}  // namespace declock::bench::figures
