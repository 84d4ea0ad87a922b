#include "figures/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "bench/paths.h"
#include "figures/checker.h"

namespace declock::bench::figures {
namespace {

constexpr const char* kMedian = "/latency_us/op/p50";
constexpr const char* kP99 = "/latency_us/op/p99";
constexpr const char* kAcquireOps = "/mn_ops_per_acquire";
constexpr const char* kDecLocks[] = {"declock-tf", "declock-pf"};
constexpr const char* kEarlier[] = {"caslock", "dslr+", "shiftlock"};

// Counted as the paper's scripts do, which add the operations of exclusive releases to CASLock's.
double in_the_papers_way(const Checker& c, const Setting& s) {
  return c.of("caslock", s, kAcquireOps) + 1 - s.config.read_ratio;
}

std::vector<Part> policy_shapes(const Checker& c) {
  const char* p50 = "/fairness/hottest_lock_acquire_us/p50";
  const char* p99 = "/fairness/hottest_lock_acquire_us/p99";
  const auto median = [&](const char* policy, double reads) { return c.hottest(policy, reads, p50); };
  const auto tail = [&](const char* policy, double reads) { return c.hottest(policy, reads, p99); };
  const auto spread = [&](const char* policy, double reads) {
    return tail(policy, reads) / median(policy, reads);
  };
  const auto like = [](double a, double b) { return std::abs(a / b - 1) <= kSimilar; };
  const auto pair = [](double a, double b) { return fmt::format("{:.0f} and {:.0f} us", a, b); };
  const char *remote = "declock-remote-prefer", *local = "declock-local-prefer",
             *bound = "declock-local-bound";
  const char *tf = "declock-tf", *pf = "declock-pf", *flat = "cql";
  std::vector<Part> parts;
  for (const double r : {0.0, 0.9}) {
    parts.push_back(shape(fmt::format("remote-prefer like no hierarchy at {:.0f} % (medians)", r * 100),
                          pair(median(remote, r), median(flat, r)),
                          like(median(remote, r), median(flat, r))));
  }
  parts.push_back(shape("remote-prefer varies more than no hierarchy at 50 % (P99 / median)",
                        fmt::format("{:.1f} and {:.1f}", spread(remote, 0.5), spread(flat, 0.5)),
                        spread(remote, 0.5) > spread(flat, 0.5)));
  for (const double r : {0.5, 0.9}) {
    parts.push_back(
        shape(fmt::format("local-prefer like TS-PF at {:.0f} % (medians, P99)", r * 100),
              pair(median(local, r), median(pf, r)) + ", " + pair(tail(local, r), tail(pf, r)),
              like(median(local, r), median(pf, r)) && like(tail(local, r), tail(pf, r))));
  }
  parts.push_back(shape("local-prefer has a heavy tail at 0 % (P99 / median above TS-PF's)",
                        fmt::format("{:.2f} and {:.2f}", spread(local, 0), spread(pf, 0)),
                        spread(local, 0) > spread(pf, 0)));
  parts.push_back(shape("local-bound like TS-PF at 0 % (medians)",
                        pair(median(bound, 0), median(pf, 0)), like(median(bound, 0), median(pf, 0))));
  for (const double r : {0.5, 0.9}) {
    parts.push_back(shape(fmt::format("local-bound behind TS-PF at {:.0f} % (medians)", r * 100),
                          pair(median(bound, r), median(pf, r)),
                          median(bound, r) >= (1 + kVisible) * median(pf, r)));
  }
  for (const char* lock : {tf, pf}) {
    for (const double r : {0.0, 0.5, 0.9}) {
      parts.push_back(
          shape(fmt::format("{} beats no hierarchy at {:.0f} % (medians, P99)",
                            lock == tf ? "TS-TF" : "TS-PF", r * 100),
                pair(median(lock, r), median(flat, r)) + ", " + pair(tail(lock, r), tail(flat, r)),
                median(lock, r) < median(flat, r) && tail(lock, r) < tail(flat, r)));
    }
  }
  for (const double r : {0.5, 0.9}) {
    parts.push_back(shape(fmt::format("TS-PF below TS-TF at {:.0f} % (medians)", r * 100),
                          pair(median(pf, r), median(tf, r)), median(pf, r) < median(tf, r)));
  }
  return parts;
}

// By how many percent a timestamp policy is below another policy, at most.
double policy_cut(const Checker& c, const char* pointer) {
  double most = -1e9;
  for (const double reads : {0.0, 0.5, 0.9}) {
    for (const char* other : {"declock-remote-prefer", "declock-local-prefer", "declock-local-bound"}) {
      for (const char* ours : kDecLocks)
        most = std::max(most,
                        100 * (1 - c.hottest(ours, reads, pointer) / c.hottest(other, reads, pointer)));
    }
  }
  return most;
}

std::vector<Part> protocol_costs(const Checker& c) {
  const std::vector<OpCounts> steps = simulate("declock-pf", "0X 2X 0U 2U");
  const auto acquire = [](const OpCounts& counts) {
    return static_cast<double>(counts.of(Purpose::acquire));
  };
  return {at_most("MN operations of an acquisition that waits", 2, acquire(steps[1]), ""),
          number("messages of a transfer between CNs", 1, static_cast<double>(steps[2].messages), "",
                 steps[2].messages == 1),
          number("MN operations per acquisition, most in figure 12", 1, c.most_of_declock(kAcquireOps),
                 "", c.most_of_declock(kAcquireOps) < 1.5)};
}

struct Row {
  Claim claim;
  std::function<std::vector<Part>(const Checker&)> check;
};

std::vector<Row> rows() {
  using S = const Setting&;
  using C = const Checker&;
  const auto ratio_of_latency = [](C c, S s) {
    return c.of("caslock", s, "/latency_us/acquire/p99") /
           c.of("caslock", s, "/latency_us/acquire/p50");
  };
  return {
      {{1, "abstract", "Best case: 43.37x the throughput of the spinlock, 1.81x the MCS lock's"},
       [](C c) {
         return std::vector{
             gain("over CASLock", 43.37, c.most_of_figure_12(c.best_over("caslock"))),
             gain("over ShiftLock", 1.81, c.most_of_figure_12(c.best_over("shiftlock")))};
       }},
      {{3, "section 1", "Best case: P99 98.2 % below the spinlock's, 43.7 % below the MCS lock's"},
       [](C c) {
         return std::vector{
             cut("against CASLock", 98.2, Checker::most(c.section, c.below("caslock", kP99))),
             cut("against ShiftLock", 43.7, Checker::most(c.section, c.below("shiftlock", kP99)))};
       }},
      {{6, "section 3", "At most 2 MN operations per acquisition, usually 1; one message per transfer"},
       protocol_costs},
      {{7, "3 left", "The spinlock needs up to 37.8 CAS per acquisition", true},
       [](C c) {
         const double ours = Checker::most(c.clients, [&](S s) { return in_the_papers_way(c, s); });
         return std::vector{number("operations, counted as the paper does", 37.8, ours, "", ours > 10)};
       }},
      {{8, "3 left", "The spinlock's throughput falls from 1.61 to 0.20 M/s", true},
       [](C c) {
         const double peak = c.peak("caslock"), end = c.throughput("caslock", c.all_clients());
         return std::vector{number("peak", 1.61, peak, " M/s", peak > 3 * end),
                            number("256 clients", 0.20, end, " M/s", peak > 3 * end)};
       }},
      {{9, "3 middle", "The spinlock's P99 is over 1000x its median; data accesses slow down too"},
       [=](C c) {
         const double ratio = Checker::most(c.clients, [&](S s) { return ratio_of_latency(c, s); });
         const double alone = c.of("caslock", c.clients[0], "/latency_us/data/p50");
         const double crowd = c.of("caslock", c.all_clients(), "/latency_us/data/p50");
         return std::vector{at_least("P99 over median of an acquisition", 1000, ratio, "x"),
                            shape("data accesses slow down",
                                  fmt::format("{:.1f} to {:.1f} us", alone, crowd), crowd > 2 * alone)};
       }},
      {{10, "3 right",
        "DSLR+ holds to 160 clients, with up to 27.4 retries; ShiftLock checks 2.34 times, dozens at "
        "long "
        "sections",
        true},
       [](C c) {
         const auto at_160 =
             std::find_if(c.clients.begin(), c.clients.end(), [](S s) { return s.x == 160; });
         const double held = c.throughput("dslr+", *at_160) / c.peak("dslr+");
         const double retries =
             Checker::most(c.clients, [&](S s) { return c.of("dslr+", s, kAcquireOps); });
         const double checks =
             Checker::most(c.clients, [&](S s) { return c.of("shiftlock", s, kAcquireOps); });
         const double dozens = c.of("shiftlock", c.longest_section(), kAcquireOps);
         return std::vector{
             shape("DSLR+ holds to 160 clients", fmt::format("{:.0f} % of its peak", 100 * held),
                   held > 0.8),
             number("retries of DSLR+", 27.4, retries, "", retries > 5),
             number("checks of ShiftLock", 2.34, checks, "", checks > 1 && checks < retries),
             shape("dozens at long sections: at least 3x that", fmt::format("{:.1f}", dozens),
                   dozens > 3 * checks)};
       }},
      {{11, "section 4.4", "Versions overflow less than once in 100,000 acquisitions"},
       [](C c) {
         return std::vector{at_most("resets per acquisition, in all of figure 12", 1e-5,
                                    c.most_per_operation("/resets"), "")};
       }},
      {{12, "section 5", "Local lock tables below 20 MB per CN"},
       [](C c) {
         return std::vector{at_most("largest in all of figure 12", 20,
                                    c.most_of_declock("/local_table_bytes_max") / 1e6, " MB")};
       }},
      {{14, "section 5.3", "Synchronised clocks differ by less than one READ (3 us)"},
       [](C c) {
         return std::vector{at_most("most that two of 8 CNs were apart, drift aside", 3,
                                    c.value(clocks_config(c.scale_), "/time_sync_error_us"), " us")};
       }},
      {{15, "12",
        "Up to 24 clients CASLock is best: 1.25x DecLock, 1.26x DSLR+, 1.46x ShiftLock; then it "
        "collapses"},
       [](C c) {
         Sweep few = c.clients;
         few.erase(std::remove_if(few.begin(), few.end(), [](S s) { return s.x > 24; }), few.end());
         const auto ahead = [&](std::string what, double paper, const Checker::Fn& ratio) {
           return number(
               std::move(what), paper, Checker::most(few, ratio), "x",
               Checker::most(few, ratio) >= 1 + kVisible && Checker::least(few, ratio) > 1 - kVisible);
         };
         const double left = c.throughput("caslock", c.all_clients()) / c.peak("caslock");
         return std::vector{
             ahead("over DecLock, and never behind", 1.25,
                   [&](S s) { return c.throughput("caslock", s) / c.best_declock(s); }),
             ahead("over DSLR+, and never behind", 1.26, c.over("caslock", "dslr+")),
             ahead("over ShiftLock, and never behind", 1.46, c.over("caslock", "shiftlock")),
             shape("then it collapses", fmt::format("to {:.0f} % of its peak", 100 * left),
                   left < 0.33)};
       }},
      {{16, "12", "With more CNs DSLR+ loses 38.9 %, ShiftLock 9.5 %", true},
       [](C c) {
         const auto loss = [&](const char* lock) {
           return 100 * (1 - c.throughput(lock, c.all_clients()) / c.peak(lock));
         };
         return std::vector{
             number("DSLR+", -38.9, -loss("dslr+"), " %", loss("dslr+") > 10),
             number("ShiftLock", -9.5, -loss("shiftlock"), " %", loss("shiftlock") >= 100 * kVisible)};
       }},
      {{17, "12", "DecLock is stable after its peak"},
       [](C c) {
         std::vector<Part> parts;
         for (const char* lock : kDecLocks) {
           const double held = c.throughput(lock, c.all_clients()) / c.peak(lock);
           parts.push_back(shape(fmt::format("{} at 256 clients", published(lock).label),
                                 fmt::format("{:.0f} % of its peak", 100 * held), held >= 1 - kAlike));
         }
         return parts;
       }},
      {{18, "12", "TF up to 1.74x DSLR+, PF up to 1.40x ShiftLock"},
       [](C c) {
         return std::vector{
             gain("TF over DSLR+", 1.74, Checker::most(c.clients, c.over("declock-tf", "dslr+"))),
             gain("PF over ShiftLock", 1.40,
                  Checker::most(c.clients, c.over("declock-pf", "shiftlock")))};
       }},
      {{19, "13 right", "Long sections: 387.9 retries of CASLock, 349.2 of DSLR+, 15.6 of ShiftLock",
        true},
       [](C c) {
         const auto most = [&](const char* lock) {
           return Checker::most(c.section, [&](S s) { return c.of(lock, s, kAcquireOps); });
         };
         const double shift = most("shiftlock"), dslr = most("dslr+");
         const double cas = Checker::most(c.section, [&](S s) { return in_the_papers_way(c, s); });
         return std::vector{number("CASLock", 387.9, cas, "", cas > dslr),
                            number("DSLR+", 349.2, dslr, "", dslr > shift),
                            number("ShiftLock", 15.6, shift, "", shift > 3)};
       }},
      {{20, "13 right", "DecLock needs at most 1.10 operations per acquisition at any length"},
       [](C c) {
         std::vector<Part> parts;
         for (const char* lock : kDecLocks) {
           parts.push_back(
               at_most(published(lock).label, 1.10,
                       Checker::most(c.section, [&](S s) { return c.of(lock, s, kAcquireOps); }), ""));
         }
         return parts;
       }},
      {{21, "12", "Over the length of sections up to 43.47x CASLock, 4.35x DSLR+, 1.81x ShiftLock"},
       [](C c) {
         return std::vector{
             gain("over CASLock", 43.47, Checker::most(c.section, c.best_over("caslock"))),
             gain("over DSLR+", 4.35, Checker::most(c.section, c.best_over("dslr+"))),
             gain("over ShiftLock", 1.81, Checker::most(c.section, c.best_over("shiftlock")))};
       }},
      {{22, "12", "Reads below 100 %: TF is 1.18 to 2.50x DSLR+, 15.31 to 20.80x CASLock"},
       [](C c) {
         const auto dslr = c.over("declock-tf", "dslr+"), cas = c.over("declock-tf", "caslock");
         return std::vector{gain("over DSLR+, least", 1.18, Checker::least(c.mixed, dslr)),
                            gain("over DSLR+, most", 2.50, Checker::most(c.mixed, dslr)),
                            gain("over CASLock, least", 15.31, Checker::least(c.mixed, cas)),
                            gain("over CASLock, most", 20.80, Checker::most(c.mixed, cas))};
       }},
      {{23, "12", "Over reads, ShiftLock is up to 1.55x TF; PF is 1.12 to 1.55x ShiftLock"},
       [](C c) {
         const auto pf = c.over("declock-pf", "shiftlock");
         return std::vector{
             gain("ShiftLock over TF", 1.55, Checker::most(c.mixed, c.over("shiftlock", "declock-tf"))),
             gain("PF over ShiftLock, least", 1.12, Checker::least(c.mixed, pf)),
             gain("PF over ShiftLock, most", 1.55, Checker::most(c.mixed, pf))};
       }},
      {{24, "12", "At 100 % reads all are similar"},
       [](C c) {
         double least = 1e9, most = 0;
         for (const Contestant& lock : the_papers()) {
           const double t = c.throughput(lock.lock.c_str(), c.reads.back());
           least = std::min(least, t);
           most = std::max(most, t);
         }
         return std::vector{shape("all similar", fmt::format("{:.2f} to {:.2f} M/s", least, most),
                                  most <= (1 + kSimilar) * least)};
       }},
      {{25, "12",
        "From 10^3 to 10^7 locks: 2.49x CASLock, 2.86x DSLR+, 1.83x ShiftLock, 2.11x TF, 1.54x PF"},
       [](C c) {
         std::vector<Part> parts;
         for (const auto& [lock, paper] :
              {std::pair{"caslock", 2.49}, std::pair{"dslr+", 2.86}, std::pair{"shiftlock", 1.83},
               std::pair{"declock-tf", 2.11}, std::pair{"declock-pf", 1.54}}) {
           parts.push_back(
               gain(published(lock).label, paper,
                    c.throughput(lock, c.locks.back()) / c.throughput(lock, c.locks.front())));
         }
         return parts;
       }},
      {{26, "12", "PF stops growing beyond 100,000 locks"},
       [](C c) {
         const auto usual =
             std::find_if(c.locks.begin(), c.locks.end(), [](S s) { return s.x == 1e5; });
         const double growth =
             c.throughput("declock-pf", c.locks.back()) / c.throughput("declock-pf", *usual);
         return std::vector{shape("no more than 10 % from there on", fmt::format("{:.2f}x", growth),
                                  growth <= 1 + kAlike)};
       }},
      {{27, "12", "Without skew the others come up to DecLock"},
       [](C c) {
         std::vector<Part> parts;
         for (const char* lock : kEarlier) {
           const double skewed = c.throughput(lock, c.skew.front()) / c.best_declock(c.skew.front());
           const double uniform = c.throughput(lock, c.skew.back()) / c.best_declock(c.skew.back());
           parts.push_back(shape(fmt::format("{}: the gap at least halves", published(lock).label),
                                 fmt::format("{:.2f} to {:.2f} of DecLock", skewed, uniform),
                                 std::abs(std::log(uniform)) <= std::abs(std::log(skewed)) / 2));
         }
         return parts;
       }},
      {{28, "13 left",
        "Over the length of sections the median is 95.8 % below CASLock's, 64.3 % DSLR+'s, 28.5 % "
        "ShiftLock's"},
       [](C c) {
         return std::vector{
             cut("against CASLock", 95.8, Checker::most(c.section, c.below("caslock", kMedian))),
             cut("against DSLR+", 64.3, Checker::most(c.section, c.below("dslr+", kMedian))),
             cut("against ShiftLock", 28.5, Checker::most(c.section, c.below("shiftlock", kMedian)))};
       }},
      {{29, "13 middle", "And the P99 98.2 %, 67.8 %, 43.7 %"},
       [](C c) {
         return std::vector{
             cut("against CASLock", 98.2, Checker::most(c.section, c.below("caslock", kP99))),
             cut("against DSLR+", 67.8, Checker::most(c.section, c.below("dslr+", kP99))),
             cut("against ShiftLock", 43.7, Checker::most(c.section, c.below("shiftlock", kP99)))};
       }},
      {{30, "13 middle",
        "CASLock's P99 is over 10x the others'; PF's is below TF's when sections are short, above when "
        "long"},
       [](C c) {
         const double tail = Checker::least(c.section, [&](S s) {
           double others = 0;
           for (const char* lock : {"dslr+", "shiftlock", "declock-tf", "declock-pf"})
             others = std::max(others, c.of(lock, s, kP99));
           return c.of("caslock", s, kP99) / others;
         });
         const auto pf_over_tf = [&](S s) {
           return c.of("declock-pf", s, kP99) / c.of("declock-tf", s, kP99);
         };
         const double brief = pf_over_tf(c.section.front()), extended = pf_over_tf(c.longest_section());
         return std::vector{
             at_least("CASLock's over the largest of the others", 10, tail, "x"),
             shape("PF below TF when short", fmt::format("{:.2f}x", brief), brief < 1),
             shape("PF above TF when long", fmt::format("{:.2f}x", extended), extended > 1)};
       }},
      {{31, "14",
        "On the hottest lock timestamps cut the median by up to 66.7 %, the P99 by up to 70.8 %"},
       [](C c) {
         return std::vector{cut("median", 66.7, policy_cut(c, "/fairness/hottest_lock_acquire_us/p50")),
                            cut("P99", 70.8, policy_cut(c, "/fairness/hottest_lock_acquire_us/p99"))};
       }},
      {{32, "14", "How the policies compare at 0, 50 and 90 % reads"}, policy_shapes},
      {{33, "15 left", "At most 0.018 READs again per release, fewer with longer sections"},
       [](C c) {
         const double most = c.most_of_declock("/refetches_per_release");
         const double brief = c.of("declock-tf", c.usual_section(), "/refetches_per_release");
         const double extended = c.of("declock-tf", c.longest_section(), "/refetches_per_release");
         return std::vector{
             number("most in all of figure 12; rare, below 0.05", 0.018, most, "", most < 0.05),
             shape("fewer with longer sections", fmt::format("{:.4f} to {:.4f}", brief, extended),
                   extended < brief)};
       }},
      {{34, "15 right", "Release median below 8.80 us up to 128 slots, uniform; less skew rises faster",
        true},
       [](C c) {
         const auto release = [&](std::uint32_t slots, double zipf) {
           return c.value(slots_config(c.scale_, slots, zipf), "/latency_us/release/p50");
         };
         const double uniform = release(2048, 0) / release(8, 0),
                      skewed = release(2048, 0.99) / release(8, 0.99);
         return std::vector{
             number("128 slots, uniform; flat to there, below 2x that of 8 slots", 8.80,
                    release(128, 0), " us", release(128, 0) < 2 * release(8, 0)),
             shape("less skew rises faster", fmt::format("{:.1f}x and {:.1f}x", uniform, skewed),
                   uniform > skewed)};
       }},
      {{35, "16 left", "A reset takes 83.29 to 520.72 us as clients grow"},
       [](C c) {
         return std::vector{
             number("8 clients", 83.29, c.reset_us(1), " us", c.reset_us(1) <= 83.29),
             number("256 clients", 520.72, c.reset_us(32), " us", c.reset_us(32) <= 520.72),
             shape("grows with the clients", fmt::format("{:.2f}x", c.reset_us(32) / c.reset_us(1)),
                   c.reset_us(32) > (1 + kVisible) * c.reset_us(1))};
       }},
      {{36, "section 6.6", "At most 0.0014 % of acquisitions are reset"},
       [](C c) {
         return std::vector{at_most("in all of figure 12", 0.0014,
                                    100 * c.most_per_operation("/aborted_acquires"), " %")};
       }},
      {{37, "16 right", "1 of 8 CNs dies: 88 % of the throughput at low contention, unchanged at high"},
       [](C c) {
         const auto left = [&](bool high) {
           const MicroConfig config = kill_config(c.scale_, false, high);
           return 100 * c.mean_of_timeline(config, 400, 600) / c.mean_of_timeline(config, 0, 200);
         };
         return std::vector{
             number("low contention", 88, left(false), " %", left(false) < 97 && left(false) > 80),
             number("high contention", 100, left(true), " %", left(true) > 95)};
       }},
      {{38, "16 right", "The MN dies: nothing until it is back, then all"},
       [](C c) {
         std::vector<Part> parts;
         for (const bool high : {false, true}) {
           const MicroConfig config = kill_config(c.scale_, true, high);
           const double before = c.mean_of_timeline(config, 0, 200);
           const double down = c.mean_of_timeline(config, 220, 290) / before;
           const double after = c.mean_of_timeline(config, 400, 600) / before;
           const std::string where = high ? "high contention" : "low contention";
           parts.push_back(
               shape(where + ": nothing meanwhile", fmt::format("{:.0f} %", 100 * down), down < 0.01));
           parts.push_back(number(where + ": afterwards", 100, 100 * after, " %", after > 0.9));
         }
         return parts;
       }},
      {{43, "18",
        "Slow network between CNs: DecLock loses at most 14.7 %, ShiftLock 49.6 %; CASLock, DSLR+ "
        "nothing"},
       [](C c) {
         const auto loss = [&](const char* lock) {
           double most = 0;
           for (const std::uint32_t section : {1u, 4u, 16u}) {
             const auto at = [&](double factor) {
               return c.value(published(lock).with(latency_config(c.scale_, factor, section)),
                              "/throughput_mops");
             };
             for (const double factor : {2.0, 4.0, 8.0})
               most = std::max(most, 100 * (1 - at(factor) / at(1)));
           }
           return most;
         };
         const double ours = loss("declock-pf"), shift = loss("shiftlock");
         return std::vector{
             number("DecLock-PF; less than ShiftLock", -14.7, -ours, " %", ours < shift),
             number("ShiftLock", -49.6, -shift, " %", shift > 20),
             shape("CASLock flat", fmt::format("-{:.1f} %", loss("caslock")), loss("caslock") < 10),
             shape("DSLR+ flat", fmt::format("-{:.1f} %", loss("dslr+")), loss("dslr+") < 10)};
       }},
      {{44, "18", "Sections of 1, even then: at least 2.79x DSLR+, 27.18x CASLock"},
       [](C c) {
         const auto least = [&](const char* other) {
           double ratio = 1e9;
           for (const double factor : {1.0, 2.0, 4.0, 8.0}) {
             const MicroConfig at = latency_config(c.scale_, factor, 1);
             ratio = std::min(ratio, c.value(published("declock-pf").with(at), "/throughput_mops") /
                                         c.value(published(other).with(at), "/throughput_mops"));
           }
           return ratio;
         };
         return std::vector{gain("over DSLR+, least", 2.79, least("dslr+")),
                            gain("over CASLock, least", 27.18, least("caslock"))};
       }},
  };
}

}  // namespace

bool Claim::agrees() const {
  return was_run() && std::all_of(parts.begin(), parts.end(), [](const Part& p) { return p.agrees; });
}

bool Claim::mostly_agrees() const {
  return 2 * std::count_if(parts.begin(), parts.end(), [](const Part& p) { return p.agrees; }) >
         std::ssize(parts);
}

bool Claim::is_numeric() const {
  return std::any_of(parts.begin(), parts.end(), [](const Part& p) { return p.is_close.has_value(); });
}

bool Claim::is_close() const {
  return is_numeric() && std::all_of(parts.begin(), parts.end(),
                                     [](const Part& p) { return p.is_close.value_or(true); });
}

ClaimCounts count(const std::vector<Claim>& claims, std::optional<bool> calibrated) {
  ClaimCounts counts;
  for (const Claim& claim : claims) {
    if (calibrated.value_or(claim.calibrated) != claim.calibrated || !claim.was_run()) continue;
    counts.run += 1;
    counts.agree += claim.agrees() ? 1 : 0;
    counts.mostly_agree += claim.mostly_agrees() ? 1 : 0;
    counts.numeric += claim.is_numeric() ? 1 : 0;
    counts.close += claim.is_close() ? 1 : 0;
  }
  return counts;
}

std::vector<Claim> check_claims(const Scale& scale, const Results& results) {
  const Checker checker{scale, results};
  std::vector<Claim> claims;
  for (Row& row : rows()) {
    try {
      row.claim.parts = row.check(checker);
    } catch (const NotRun&) {
      row.claim.parts.clear();
    }
    row.claim.note = reason_of(row.claim.number);
    claims.push_back(std::move(row.claim));
  }
  return claims;
}

}  // namespace declock::bench::figures
