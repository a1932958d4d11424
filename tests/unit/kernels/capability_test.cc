// The same kernels compiled for other instruction sets, against the portable ones.

#include <algorithm>

#include "kernels/vector/tables.h"
#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

std::vector<const KernelTables*> vector_tables() {
  std::vector<const KernelTables*> present;
  for (Capability c : {Capability::kAvx2, Capability::kAvx512, Capability::kAmx}) {
    if (tables_of(c) != nullptr) present.push_back(tables_of(c));
  }
  return present;
}

const KernelTables& portable() { return *tables_of(Capability::kDefault); }

template <class T>
std::vector<double> doubles(const std::vector<T>& values) {
  std::vector<double> wide;
  for (T v : values) wide.push_back(value_of(v));
  return wide;
}

// Runs f(tables) -> vector with each set and compares with the portable one.
template <class F>
void expect_agreement(double tolerance, const char* what, F f) {
  const auto expected = doubles(f(portable()));
  for (const KernelTables* t : vector_tables()) expect_near(f(*t), expected, tolerance, what);
}
template <class F>
void expect_same_bits(const char* what, F f) {
  const auto expected = f(portable());
  for (const KernelTables* t : vector_tables()) EXPECT_TRUE(same_bits(f(*t), expected)) << what;
}

TEST(Capability, OneIsChosen) {
  bool known = false;
  for (Capability c :
       {Capability::kDefault, Capability::kAvx2, Capability::kAvx512, Capability::kAmx}) {
    known = known || tables_of(c) == &tables();
  }
  EXPECT_TRUE(known);
}

template <class T>
class CapabilityTest : public ::testing::Test {};
TYPED_TEST_SUITE(CapabilityTest, ElementTypes);

TYPED_TEST(CapabilityTest, RowKernelsAgree) {
  using T = TypeParam;
  constexpr double kSlack = 4 * kTolerance<T>;
  const std::int64_t rows = 3;
  for (std::int64_t cols : kAwkward) {
    const auto x = random_values<T>(rows * cols, 1), dy = random_values<T>(rows * cols, 2);
    const auto gain = random_values<float>(cols, 3);
    const std::vector<float> rstd(rows, 0.9f), max(rows, 4.0f), sum(rows, 9.0f);
    const std::vector<std::int64_t> targets(rows, cols / 2);
    using Tables = const KernelTables&;
    std::vector<T> out(x.size());
    expect_agreement(kSlack, "norm", [&](Tables t) {
      std::vector<float> dgain(cols), dbias(cols);
      t.norm.template get<T>().norm_backward(dy.data(), x.data(), rstd.data(), rstd.data(),
                                             gain.data(), x.data(), rows, cols, out.data(),
                                             dgain.data(), dbias.data());
      return out;
    });
    expect_agreement(kSlack, "gelu", [&](Tables t) {
      t.activation.template get<T>().bias_gelu_backward(
          dy.data(), x.data(), gain.data(), rows, cols, out.data(), nullptr, nullptr, nullptr);
      return out;
    });
    expect_agreement(kSlack, "swiglu", [&](Tables t) {
      std::vector<T> half(x.size() / 2 + 1);
      t.activation.template get<T>().swiglu_forward(x.data(), 1, rows * cols / 2, half.data(),
                                                    nullptr);
      return half;
    });
    expect_agreement(kSlack, "scaled swiglu", [&](Tables t) {
      std::vector<T> din(x.size() * 2);
      std::vector<float> dscale(rows);
      const auto in = random_values<T>(2 * rows * cols, 4);
      t.activation.template get<T>().swiglu_backward(dy.data(), in.data(), rows, cols, din.data(),
                                                     rstd.data(), dscale.data());
      for (float d : dscale) din.push_back(T(d));
      return din;
    });
    expect_agreement(kSlack, "cross entropy", [&](Tables t) {
      std::vector<T> logits = x;
      t.cross_entropy.template get<T>().softmax_gradient(
          logits.data(), max.data(), sum.data(), targets.data(), 0, rstd.data(), rows, cols);
      return logits;
    });
    expect_agreement(1e-5, "sum of exponentials", [&](Tables t) {
      std::vector<float> sums(rows), target(rows);
      t.cross_entropy.template get<T>().sum_exp_and_target(x.data(), max.data(), targets.data(), 0,
                                                           rows, cols, sums.data(), target.data());
      return sums;
    });
    expect_same_bits("dropout", [&](Tables t) {
      const DropoutSpec spec{.p = 0.5f, .key = {1, 2}, .step = 3, .layer = 4, .col0 = 5};
      t.dropout.template get<T>().forward(x.data(), gain.data(), dy.data(), out.data(), rows, cols,
                                          spec);
      return out;
    });
    expect_same_bits("sum of rows", [&](Tables t) {
      const std::vector<std::int32_t> index{2, 0, 1, 1, -1, 0};
      t.rows.template get<T>().sum_rows(x.data(), cols, index.data(), 2, 3, out.data());
      return out;
    });
    expect_same_bits("column sums", [&](Tables t) {
      std::vector<float> sums(cols, 1.0f);
      t.elementwise.template get<T>().column_sums(x.data(), rows, cols, sums.data());
      return sums;
    });
  }
}

TYPED_TEST(CapabilityTest, AttentionAgrees) {
  using T = TypeParam;
  for (std::int64_t seq : {5, 70, 130}) {
    for (std::int64_t dim : {7, 32, 64}) {
      const auto q = random_values<T>(seq * dim, 1), k = random_values<T>(seq * dim, 2),
                 v = random_values<T>(seq * dim, 3), dout = random_values<T>(seq * dim, 4);
      expect_agreement(
          std::is_same_v<T, float> ? 5e-5 : 3e-2, "attention", [&](const KernelTables& t) {
            const AttentionTable<T>& table = t.attention.template get<T>();
            std::vector<float> lse(seq);
            HeadTask<T> task;
            task.queries = task.keys = seq;
            task.head_dim = task.q_stride = task.k_stride = task.v_stride = dim;
            task.q = q.data(), task.k = k.data(), task.v = v.data(), task.lse = lse.data();
            std::vector<float> scratch(
                std::max(table.forward_scratch(task), table.backward_scratch(task)) + 16);
            std::vector<T> out(seq * dim), grads(3 * seq * dim);
            table.forward(task, out.data(), dim, scratch.data());
            table.backward(task, out.data(), dout.data(), dim, grads.data(),
                           grads.data() + seq * dim, grads.data() + 2 * seq * dim, dim, dim, dim,
                           scratch.data());
            grads.insert(grads.end(), out.begin(), out.end());
            table.forward_few(task, out.data(), dim, scratch.data());
            grads.insert(grads.end(), out.begin(), out.end());
            return grads;
          });
    }
  }
}

TEST(Capability, RandomNumbersCastsAndExactSumsHaveTheSameBits) {
  for (std::int64_t groups : {1, 3, 8, 101}) {
    expect_same_bits("normal", [&](const KernelTables& t) {
      std::vector<float> out(4 * groups);
      t.random.normal_groups(out.data(), 0xfffffffeu, groups, {1, 2}, 3, 0.7f);
      return out;
    });
  }
  const auto x = random_values<float>(3001, 1, 1e10f);
  expect_same_bits("cast", [&](const KernelTables& t) {
    std::vector<BFloat16> out(x.size());
    t.cast.to_bf16(x.data(), out.data(), 3001);
    return out;
  });
  expect_same_bits("exact sum", [&](const KernelTables& t) {
    ExactSum sum;
    t.exact_sum.f32.add_squares(x.data(), 3001, sum);
    return std::vector<double>{sum.value()};
  });
  expect_agreement(1e-6, "adamw", [&](const KernelTables& t) {
    std::vector<float> w = x, m(x.size(), 0.5f), v(x.size(), 0.25f);
    t.optimizer.adamw(w.data(), x.data(), m.data(), v.data(), 3001, {.lr = 0.1f}, nullptr);
    return w;
  });
}

}  // namespace
}  // namespace fourfold::kernels
