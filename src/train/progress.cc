#include "train/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

#include "base/env.h"
#include "base/units.h"

namespace fourfold {
namespace {

/// Weight of the newest step in the smoothed step time.
constexpr double kSmoothing = 0.1;

/// What a step's line says of experts, after the loss.
std::string experts_text(const std::optional<ExpertsRecord>& experts) {
  if (!experts) return "";
  return fmt::format("  aux {:.3g}  load {:.2f}{}", experts->aux_loss, experts->max_over_mean,
                     experts->forced ? " (forced balance)" : "");
}

}  // namespace

Progress::Progress(const Options& options)
    : options_(options),
      terminal_(isatty(STDOUT_FILENO) == 1 && !options.json),
      colour_(terminal_ && !env("NO_COLOR")) {}

void Progress::clear_live_line() {
  if (live_) fmt::print("\r\033[K");
  live_ = false;
}

void Progress::step(const StepRecord& r) {
  smooth_seconds_ = smooth_seconds_ == 0
                        ? r.step_seconds
                        : smooth_seconds_ + kSmoothing * (r.step_seconds - smooth_seconds_);
  if (options_.json) return metrics(to_json(r));
  const bool due = r.step % options_.log_interval == 0 || r.step == options_.steps;
  if (!terminal_ && !due) return;
  const std::string left =
      format_duration(smooth_seconds_ * static_cast<double>(options_.steps - r.step));
  const std::string text = fmt::format(
      "step {:>5}/{}  loss {:.4f}{}  grad {:.3f}  lr {:.2e}  {:>7.0f} tokens/s  MFU {:.1f}%  {} "
      "left{}",
      r.step, options_.steps, r.loss, experts_text(r.experts), r.grad_norm, r.lr,
      r.tokens_per_second, 100 * r.mfu, left, r.skipped ? "  skipped: not finite" : "");
  clear_live_line();
  if (terminal_) {
    fmt::print("{}{}{}", colour_ ? "\033[36m" : "", text, colour_ ? "\033[0m" : "");
    live_ = true;
  } else {
    fmt::print("{}\n", text);
  }
  std::fflush(stdout);
}

void Progress::metrics(const JsonLine& line) {
  if (!options_.json) return;
  fmt::print("{}\n", line.text());
  std::fflush(stdout);
}

void Progress::validation(const ValidationRecord& r) {
  if (options_.json) return metrics(to_json(r));
  say(fmt::format("step {:>5}/{}  validation loss {:.4f}", r.step, options_.steps, r.val_loss));
}

void Progress::say(const std::string& text) {
  if (options_.json) return;
  clear_live_line();
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void Progress::finish() {
  if (live_) fmt::print("\n");
  live_ = false;
}

}  // namespace fourfold
