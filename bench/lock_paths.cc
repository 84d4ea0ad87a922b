// What is documented of each lock's paths.
#include "bench/paths.h"

namespace declock::bench {

const std::vector<LockPaths>& lock_paths() {
  using enum OpKind;
  // One after the other: a client of node 0, then one of node 1.
  constexpr std::string_view kExclusiveAlone = "0X 0U", kSharedAlone = "0S 0U";
  constexpr std::string_view kBehindWriter = "0X 2X 0U 2U", kReaderBehindWriter = "0X 2S 0U 2U",
                             kBehindReader = "0S 2X 0U 2U", kFrozenShared = "0P 0S 2S 0U 2U",
                             kFrozenExclusive = "0Q 0X 2X 0U 2U";
  const Cost one_add{{{fetch_add, 1}}};
  const Cost one_swap{{{masked_compare_swap, 1}}};
  const Cost polled_add{{{fetch_add, 1}, {read, 0, 1}}};
  const Cost swaps{{{compare_swap, 1, 1}}};
  // The holder's release, and the polls until the waiting one has seen it: the one that does may have been counted before.
  const Cost add_polled{{{fetch_add, 1}, {read, 0, 1}}, 0, 0};
  const Cost add_swapped{{{fetch_add, 1}, {compare_swap, 0, 1}}, 0, 0};
  // A release, a look, a reset; polls until it is seen, a ticket.
  const Cost thaw{{{fetch_add, 2}, {compare_swap, 1}, {read, 1, 1}}};
  const std::vector<Path> ticket_lock{
      {"X alone: acquire", kExclusiveAlone, 0, one_add},
      {"X alone: release", kExclusiveAlone, 1, one_add},
      {"S alone: acquire", kSharedAlone, 0, one_add},
      {"S alone: release", kSharedAlone, 1, one_add},
      {"X waits for X", kBehindWriter, 1, polled_add},
      {"and gets in when it is released", kBehindWriter, 2, add_polled},
      {"X waits for S", kBehindReader, 1, polled_add},
      {"and gets in when it is released", kBehindReader, 2, add_polled},
      {"S waits for X", kReaderBehindWriter, 1, polled_add},
      {"and gets in when it is released", kReaderBehindWriter, 2, add_polled},
      {"release after waiting", kBehindWriter, 3, one_add},
      {"frozen by readers: a ticket bounces", kFrozenShared, 2, {{{fetch_add, 2}, {read, 0, 1}}}},
      {"the last one releases and resets, the bounced one gets in", kFrozenShared, 3, thaw},
      {"frozen by writers: a ticket bounces", kFrozenExclusive, 2, {{{fetch_add, 2}, {read, 0, 1}}}},
      {"the last one releases and resets, the bounced one gets in", kFrozenExclusive, 3, thaw},
  };
  const std::vector<Path> declock{
      {"X alone: acquire", kExclusiveAlone, 0, one_add},
      {"X alone: release", kExclusiveAlone, 1, one_add},
      {"S alone: acquire", kSharedAlone, 0, one_add},
      {"S alone: release", kSharedAlone, 1, one_add},
      {"X waits for X of another node", kBehindWriter, 1, {{{fetch_add, 1}, {write, 1}}}},
      {"and is handed the lock", kBehindWriter, 2, {{{fetch_add, 1}, {read, 1}}, 1}},
      {"and releases it", kBehindWriter, 3, {{{fetch_add, 1}, {read, 1}}}},
      {"S waits for X of another node", kReaderBehindWriter, 1, {{{fetch_add, 1}, {write, 1}}}},
      {"and is handed the lock", kReaderBehindWriter, 2, {{{fetch_add, 1}, {read, 1}}, 1}},
      {"X waits for S of another node", kBehindReader, 1, {{{fetch_add, 1}, {write, 1}}}},
      {"and is handed the lock", kBehindReader, 2, {{{fetch_add, 1}, {read, 1}}, 1}},
      {"two readers of two nodes are handed the lock",
       "0X 2S 4S 0U 2U 4U",
       3,
       {{{fetch_add, 1}, {read, 1}}, 2}},
      {"the first of two readers releases", "0S 2S 4X 0U 2U 4U", 3, {{{fetch_add, 1}, {read, 1}}}},
      {"the last of two readers releases to a writer",
       "0S 2S 4X 0U 2U 4U",
       4,
       {{{fetch_add, 1}, {read, 1}}, 1}},
  };
  std::vector<Path> hierarchical = declock;
  hierarchical.push_back({"X waits for X of its own node", "0X 1X 0U 1U", 1, {{{read, 1}}}});
  hierarchical.push_back({"and is handed the lock", "0X 1X 0U 1U", 2, {}});
  hierarchical.push_back(
      {"S, and another S of its own node that joins at once", "0S 1S@20000 0U 1U", 0, one_add});
  hierarchical.push_back(
      {"S joins S of its own node after a while (H25)", "0S 1S 1U 1S 0U 1U", 3, {{{read, 1}}}});
  hierarchical.push_back({"the first of the two releases", "0S 1S 1U 1S 0U 1U", 4, {}});

  static const std::vector<LockPaths> all{
      {"declock-tf", hierarchical},
      {"declock-pf", hierarchical},
      {"declock-slack", hierarchical},
      {"cql", declock},
      {"caslock",
       {{"X alone: acquire", kExclusiveAlone, 0, {{{compare_swap, 1}}}},
        {"X alone: release", kExclusiveAlone, 1, one_add},
        {"S alone: acquire", kSharedAlone, 0, one_add},
        {"S alone: release", kSharedAlone, 1, one_add},
        {"X waits for X", kBehindWriter, 1, swaps},
        {"and gets in when it is released", kBehindWriter, 2, add_swapped},
        {"X waits for S", kBehindReader, 1, swaps},
        {"and gets in when it is released", kBehindReader, 2, add_swapped},
        {"S waits for X", kReaderBehindWriter, 1, polled_add},
        {"and gets in when it is released", kReaderBehindWriter, 2, add_polled},
        {"release after waiting", kBehindWriter, 3, one_add}}},
      {"caslock-takeback",
       {{"X alone: acquire", kExclusiveAlone, 0, {{{compare_swap, 1}}}},
        {"X alone: release", kExclusiveAlone, 1, one_add},
        {"S alone: acquire", kSharedAlone, 0, one_add},
        {"S alone: release", kSharedAlone, 1, one_add},
        {"X waits for X", kBehindWriter, 1, swaps},
        {"X waits for S", kBehindReader, 1, swaps},
        {"release after waiting", kBehindWriter, 3, one_add},
        {"S waits for X, which releases", "0X 2S 0U@20000 2U", 1, {{{fetch_add, 2, 2}}}}}},
      {"dslr", ticket_lock},
      {"dslr+", ticket_lock},
      {"shiftlock",
       {{"X alone: acquire", kExclusiveAlone, 0, one_swap},
        {"X alone: release", kExclusiveAlone, 1, one_swap},
        {"S alone: acquire", kSharedAlone, 0, one_add},
        {"S alone: release", kSharedAlone, 1, one_add},
        {"X waits for X: queues", kBehindWriter, 1, {{{masked_compare_swap, 3}}, 1}},
        {"and is handed the lock", kBehindWriter, 2, {{}, 1}},
        {"X releases, successor unknown but queued",
         "0X 2X 0U@9500 2U",
         1,
         {{{masked_compare_swap, 4}}, 2}},
        {"the 16th writer in a row releases, nobody reads",
         "0X 2X 4X 6X 8X 10X 12X 14X 16X 18X 20X 22X 24X 26X 28X 30X 32X "
         "0U 2U 4U 6U 8U 10U 12U 14U 16U 18U 20U 22U 24U 26U 28U 30U 32U",
         32,
         {{{fetch_add, 1}}, 1}},
        {"the 16th writer in a row releases, successor unknown but queued",
         "0X 2X 4X 6X 8X 10X 12X 14X 16X 18X 20X 22X 24X 26X 28X 30X "
         "0U 2U 4U 6U 8U 10U 12U 14U 16U 18U 20U 22U 24U 26U 28U 32X 30U@9500 32U",
         31,
         {{{masked_compare_swap, 4}, {fetch_add, 1}}, 2}},
        {"the 16th writer in a row releases to waiting readers",
         "0X 2X 4X 6X 8X 10X 12X 14X 16X 18X 20X 22X 24X 26X 28X 30X 32X 34S "
         "0U 2U 4U 6U 8U 10U 12U 14U 16U 18U 20U 22U 24U 26U 28U 30U 34U 32U",
         33,
         {{{fetch_add, 1}, {read, 0, 1}}, 1}},
        {"X waits for S", kBehindReader, 1, {{{masked_compare_swap, 3}, {read, 0, 1}}}},
        {"and gets in when it is released", kBehindReader, 2, add_polled},
        {"S waits for X", kReaderBehindWriter, 1, polled_add},
        {"and gets in when it is released",
         kReaderBehindWriter,
         2,
         {{{masked_compare_swap, 1}, {read, 0, 1}}, 0, 0}},
        {"S releases after waiting", kReaderBehindWriter, 3, one_add}}},
  };
  return all;
}

}  // namespace declock::bench
