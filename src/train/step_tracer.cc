#include "train/step_tracer.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "ckpt/agree.h"
#include "formats/chrome_trace.h"

namespace fourfold {

StepTracer::StepTracer(std::string run_dir, Communicator& world, int count, std::int64_t first,
                       std::int64_t end)
    : run_dir_(std::move(run_dir)), world_(world) {
  constexpr std::int64_t kLeftOut = 2;
  first_ = std::clamp(end - count, first, first + kLeftOut);
  end_ = std::min(first_ + count, end);
}

void StepTracer::begin(std::int64_t step) {
  if (step < first_ || step >= end_) return;
  if (step == first_) {
    // The ranks' clocks have nothing in common: their zero is the moment when all are here.
    world_.barrier().wait_host();
    zero_ = SteadyClock().seconds();
    world_.timeline().start();
  }
  step_began_ = SteadyClock().seconds();
}

void StepTracer::end(std::int64_t step, const Log& log) {
  if (step < first_ || step >= end_) return;
  world_.timeline().add({std::string(kMainTrack), fmt::format("step {}", step + 1),
                         TimelineSpan::Kind::kStep, step_began_, SteadyClock().seconds()});
  if (step + 1 == end_) finish(log);
}

void StepTracer::finish(const Log& log) {
  if (!world_.timeline().on()) return;
  const auto spans = world_.timeline().stop();
  const auto failed = run_together(world_, [&] {
    write_chrome_trace(trace_path(run_dir_, world_.rank()), world_.rank(), zero_, spans);
  });
  if (failed) log.warning("no timeline is kept: {}", failed->what());
}

}  // namespace fourfold
