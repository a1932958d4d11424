#include "kernels/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/parallel.h"

namespace fourfold::kernels {
namespace {

// Below what any score that matters can be: keeps sigmoids that all underflow from giving 0 / 0.
constexpr double kTiny = 1e-20;
// Element steps of one exponential or logarithm in double.
constexpr std::int64_t kTranscendental = 16;

double sum_of(const float* row, std::int64_t n) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += row[i];
  return total;
}

// Writes exp(logit - max) and returns log Σ exp(logit); the sum goes to `total`.
double exponentials(const float* logits, std::int64_t experts, double* out, double& total) {
  const double max = *std::max_element(logits, logits + experts);
  total = 0;
  for (std::int64_t e = 0; e < experts; ++e) total += out[e] = std::exp(logits[e] - max);
  return max + std::log(total);
}

// Adds f(row) over rows in their order, whatever the threads.
double sum_over_rows(std::int64_t rows, std::int64_t cost, FunctionRef<double(std::int64_t)> f) {
  std::vector<double> of_row(static_cast<std::size_t>(rows));
  parallel_ranges(rows, cost, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) of_row[row] = f(row);
  });
  double total = 0;
  for (double value : of_row) total += value;
  return total;
}

// One row of choose_experts. `best` and `values` have room for one more than top_k, the runner-up,
// unless all are chosen.
void choose(const float* scores, const float* bias, std::int64_t experts,
            std::vector<std::int32_t>& best, std::vector<float>& values) {
  std::size_t found = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const float value = bias != nullptr ? scores[e] + bias[e] : scores[e];
    if (found < best.size()) {
      ++found;
    } else if (!(value > values.back())) {
      continue;
    }
    std::size_t place = found - 1;
    for (; place > 0 && values[place - 1] < value; --place) {
      values[place] = values[place - 1];
      best[place] = best[place - 1];
    }
    values[place] = value;
    best[place] = static_cast<std::int32_t>(e);
  }
}

// The gradient of the scores of one row.
void score_gradient(const RouterGradients& in, std::int64_t row, std::int64_t experts,
                    std::vector<double>& d_scores) {
  const float* scores = in.scores + row * experts;
  const std::int32_t* chosen = in.chosen + row * in.top_k;
  const float* d_weights = in.d_weights + row * in.top_k;
  std::fill(d_scores.begin(), d_scores.end(), 0.0);
  if (in.d_probabilities != nullptr) {
    const float* d = in.d_probabilities + row * experts;
    double total = 1, along = 0;  // Of p = s / Σ s: ds = (dp - Σ dp·p) / Σ s.
    if (in.sigmoid) {
      total = sum_of(scores, experts) + kTiny;
      for (std::int64_t e = 0; e < experts; ++e) along += static_cast<double>(d[e]) * scores[e];
      along /= total;
    }
    for (std::int64_t e = 0; e < experts; ++e) d_scores[e] = (d[e] - along) / total;
  }
  double total = 1, along = 0;  // The same among the chosen ones.
  if (in.renormalise) {
    total = kTiny;
    for (int j = 0; j < in.top_k; ++j) {
      total += scores[chosen[j]];
      along += static_cast<double>(d_weights[j]) * scores[chosen[j]];
    }
    along /= total;
  }
  for (int j = 0; j < in.top_k; ++j) d_scores[chosen[j]] += (d_weights[j] - along) / total;
}

}  // namespace

void router_scores(const float* logits, std::int64_t rows, std::int64_t experts, bool sigmoid,
                   float* scores) {
  parallel_ranges(rows, experts * kTranscendental, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> exps(static_cast<std::size_t>(experts));
    for (std::int64_t row = begin; row < end; ++row) {
      const float* in = logits + row * experts;
      float* out = scores + row * experts;
      if (sigmoid) {
        for (std::int64_t e = 0; e < experts; ++e) {
          out[e] = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(in[e]))));
        }
        continue;
      }
      double total = 0;
      exponentials(in, experts, exps.data(), total);
      for (std::int64_t e = 0; e < experts; ++e) out[e] = static_cast<float>(exps[e] / total);
    }
  });
}

void choose_experts(const float* scores, const float* bias, std::int64_t rows, std::int64_t experts,
                    int top_k, std::int32_t* chosen, float* margin) {
  const std::int64_t kept = std::min<std::int64_t>(top_k + 1, experts);
  parallel_ranges(rows, experts * top_k, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t> best(static_cast<std::size_t>(kept));
    std::vector<float> values(best.size());
    for (std::int64_t row = begin; row < end; ++row) {
      choose(scores + row * experts, bias, experts, best, values);
      std::copy_n(best.begin(), top_k, chosen + row * top_k);
      if (margin == nullptr) continue;
      margin[row] =
          kept > top_k ? values[top_k - 1] - values[top_k] : std::numeric_limits<float>::infinity();
    }
  });
}

void combine_weights(const float* scores, const std::int32_t* chosen, std::int64_t rows,
                     std::int64_t experts, int top_k, bool renormalise, float* weights) {
  parallel_ranges(rows, 2 * top_k, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int32_t* experts_of_row = chosen + row * top_k;
      float* out = weights + row * top_k;
      for (int j = 0; j < top_k; ++j) out[j] = scores[row * experts + experts_of_row[j]];
      if (!renormalise) continue;
      const double total = sum_of(out, top_k) + kTiny;
      for (int j = 0; j < top_k; ++j) out[j] = static_cast<float>(out[j] / total);
    }
  });
}

void router_backward(const RouterGradients& in, std::int64_t rows, std::int64_t experts,
                     float* d_logits) {
  const std::int64_t cost = experts * (in.z_coefficient != 0 ? kTranscendental : 4);
  parallel_ranges(rows, cost, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> d(static_cast<std::size_t>(experts)), exps(d.size());
    for (std::int64_t row = begin; row < end; ++row) {
      const float* scores = in.scores + row * experts;
      float* out = d_logits + row * experts;
      score_gradient(in, row, experts, d);
      double along = 0;
      for (std::int64_t e = 0; e < experts; ++e) along += d[e] * scores[e];
      for (std::int64_t e = 0; e < experts; ++e) {
        const double s = scores[e];
        d[e] = in.sigmoid ? d[e] * s * (1 - s) : s * (d[e] - along);
      }
      if (in.z_coefficient != 0) {
        double total = 0;
        const double lse = exponentials(in.logits + row * experts, experts, exps.data(), total);
        const double factor = 2.0 * in.z_coefficient * lse / total;
        for (std::int64_t e = 0; e < experts; ++e) d[e] += factor * exps[e];
      }
      for (std::int64_t e = 0; e < experts; ++e) out[e] = static_cast<float>(d[e]);
    }
  });
}

double z_loss_sum(const float* logits, std::int64_t rows, std::int64_t experts) {
  return sum_over_rows(rows, experts * kTranscendental, [&](std::int64_t row) {
    const float* in = logits + row * experts;
    const double max = *std::max_element(in, in + experts);
    double total = 0;
    for (std::int64_t e = 0; e < experts; ++e) total += std::exp(in[e] - max);
    const double lse = max + std::log(total);
    return lse * lse;
  });
}

double balance_sum(const float* scores, const float* share, std::int64_t rows, std::int64_t experts,
                   std::int64_t rows_per_scope, bool sigmoid) {
  return sum_over_rows(rows, experts, [&](std::int64_t row) {
    const float* in = scores + row * experts;
    const float* f = share + row / rows_per_scope * experts;
    const double total = sigmoid ? sum_of(in, experts) + kTiny : 1;
    double sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) sum += static_cast<double>(f[e]) * in[e];
    return sum / total;
  });
}

double entropy_sum(const float* scores, std::int64_t rows, std::int64_t experts, bool sigmoid) {
  return sum_over_rows(rows, experts * kTranscendental, [&](std::int64_t row) {
    const float* in = scores + row * experts;
    const double total = sigmoid ? sum_of(in, experts) + kTiny : 1;
    double entropy = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      const double p = in[e] / total;
      if (p > 0) entropy -= p * std::log(p);
    }
    return entropy;
  });
}

}  // namespace fourfold::kernels
