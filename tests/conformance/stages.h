// The stages by fabric; make_stage() chooses.
#pragma once

#include "conformance/stage.h"

namespace declock::conformance {

std::unique_ptr<Stage> make_sim_stage(std::uint32_t nodes);
std::unique_ptr<Stage> make_shm_stage(std::uint32_t nodes);
std::unique_ptr<Stage> make_tcp_stage(std::uint32_t nodes);
std::unique_ptr<Stage> make_verbs_stage(std::uint32_t nodes);

}  // namespace declock::conformance
