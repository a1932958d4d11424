#include "kernels/attention.h"

#include "kernels/dropout.h"
#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

// Plain attention of one sample and head in double, with dropout as the header states it.
struct Reference {
  AttentionShape s;
  AttentionDropout dropout;
  std::vector<double> out, lse, dq, dk, dv;

  double factor(std::int64_t batch, std::int64_t head, std::int64_t query, std::int64_t key) const {
    if (dropout.p == 0) return 1;
    const PhiloxCounter mixed = philox4x32({dropout.step, dropout.layer, 0, 0}, dropout.key);
    const auto sample =
        static_cast<std::uint64_t>(dropout.samples != nullptr ? dropout.samples[batch] : batch);
    const auto global_head = static_cast<std::uint32_t>(dropout.first_head + head);
    const PhiloxCounter words =
        philox4x32({static_cast<std::uint32_t>(key / 4), static_cast<std::uint32_t>(query),
                    static_cast<std::uint32_t>(sample),
                    global_head | static_cast<std::uint32_t>(sample >> 32) << 16},
                   {mixed[0], mixed[1]});
    return words[key % 4] >= dropout_threshold(dropout.p) ? 1 / (1 - double{dropout.p}) : 0;
  }

  template <class T>
  Reference(const AttentionShape& shape, const AttentionDropout& drop, HeadView<const T> q,
            HeadView<const T> k, HeadView<const T> v, const T* dout)
      : s(shape), dropout(drop) {
    const std::int64_t d = s.head_dim, past = s.keys - s.queries;
    out.assign(s.batch * s.queries * s.heads * d, 0);
    dq = out;
    dk.assign(s.batch * s.keys * s.kv_heads * d, 0);
    dv = dk;
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const std::int64_t kv = h / (s.heads / s.kv_heads);
        for (std::int64_t i = 0; i < s.queries; ++i) {
          row(b, h, kv, i, past, q, k, v, dout);
        }
      }
    }
  }

  template <class T>
  static double at(const HeadView<const T>& view, std::int64_t b, std::int64_t row, std::int64_t h,
                   std::int64_t i) {
    return value_of(
        view.data[b * view.batch_stride + row * view.row_stride + h * view.head_stride + i]);
  }

  template <class T>
  void row(std::int64_t b, std::int64_t h, std::int64_t kv, std::int64_t i, std::int64_t past,
           HeadView<const T> q, HeadView<const T> k, HeadView<const T> v, const T* dout) {
    const std::int64_t d = s.head_dim, seen = past + i + 1;
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    std::vector<double> p(seen), dp(seen);
    double total = 0, delta = 0;
    for (std::int64_t j = 0; j < seen; ++j) {
      double dot = 0;
      for (std::int64_t c = 0; c < d; ++c) dot += at(q, b, i, h, c) * at(k, b, j, kv, c);
      total += p[j] = std::exp(dot * scale);
    }
    lse.push_back(std::log(total));
    const std::int64_t o = ((b * s.queries + i) * s.heads + h) * d;
    for (std::int64_t j = 0; j < seen; ++j) {
      p[j] /= total;
      const double kept = factor(b, h, past + i, j);
      const std::int64_t kv_at = ((b * s.keys + j) * s.kv_heads + kv) * d;
      for (std::int64_t c = 0; c < d; ++c) {
        const double g = dout != nullptr ? value_of(dout[o + c]) : 0;
        out[o + c] += p[j] * kept * at(v, b, j, kv, c);
        dv[kv_at + c] += p[j] * kept * g;
        dp[j] += kept * g * at(v, b, j, kv, c);
      }
      delta += p[j] * dp[j];
    }
    for (std::int64_t j = 0; j < seen; ++j) {
      const std::int64_t kv_at = ((b * s.keys + j) * s.kv_heads + kv) * d;
      const double ds = p[j] * (dp[j] - delta) * scale;
      for (std::int64_t c = 0; c < d; ++c) {
        dq[o + c] += ds * at(k, b, j, kv, c);
        dk[kv_at + c] += ds * at(q, b, i, h, c);
      }
    }
  }
};

template <class T>
void check_training(const AttentionShape& s, const AttentionDropout& dropout) {
  const std::int64_t d = s.head_dim, width = (s.heads + 2 * s.kv_heads) * d;
  const auto qkv = random_values<T>(s.batch * s.queries * width, 1);
  const auto dout = random_values<T>(s.batch * s.queries * s.heads * d, 2);
  std::vector<T> out(dout.size()), dqkv(qkv.size());
  std::vector<float> lse(s.batch * s.heads * s.queries);
  const auto in = fused_qkv(qkv.data(), s.queries, s.heads, s.kv_heads, d);
  const auto grads = fused_qkv(dqkv.data(), s.queries, s.heads, s.kv_heads, d);
  attention_forward<T>(s, in.q, in.k, in.v, dense_heads(out.data(), s.queries, s.heads, d),
                       lse.data(), dropout);
  attention_backward<T>(s, in.q, in.k, in.v,
                        dense_heads<const T>(out.data(), s.queries, s.heads, d),
                        dense_heads(dout.data(), s.queries, s.heads, d), lse.data(), grads.q,
                        grads.k, grads.v, dropout);
  const Reference expected(s, dropout, in.q, in.k, in.v, dout.data());
  std::vector<double> dqkv_ref;
  for (std::int64_t r = 0; r < s.batch * s.queries; ++r) {
    auto append = [&](const std::vector<double>& of, std::int64_t n) {
      dqkv_ref.insert(dqkv_ref.end(), of.begin() + r * n, of.begin() + (r + 1) * n);
    };
    append(expected.dq, s.heads * d);
    append(expected.dk, s.kv_heads * d);
    append(expected.dv, s.kv_heads * d);
  }
  const double tolerance = std::is_same_v<T, float> ? 2e-5 : 2e-2;
  expect_near(out, expected.out, tolerance, "out");
  expect_near(lse, expected.lse, tolerance, "lse");
  expect_near(dqkv, dqkv_ref, tolerance * 2, "dqkv");
}

template <class T>
class AttentionTest : public ::testing::Test {};
TYPED_TEST_SUITE(AttentionTest, ElementTypes);

TYPED_TEST(AttentionTest, TrainingAtAwkwardSizes) {
  for (std::int64_t seq : {1, 5, 63, 64, 65, 257}) {
    for (std::int64_t d : {1, 16, 24, 64, 80}) {
      SCOPED_TRACE(testing::Message() << "seq " << seq << " head " << d);
      check_training<TypeParam>({2, seq, seq, 2, 2, d}, {});
    }
  }
}

TYPED_TEST(AttentionTest, GroupsShareKeysAndDropoutIsKeyedGlobally) {
  const std::vector<std::int64_t> samples{7, 1LL << 34};
  AttentionDropout dropout{.p = 0.3f, .key = {4, 5}, .step = 3, .layer = 2};
  dropout.samples = samples.data();
  dropout.first_head = 12;
  for (std::int64_t seq : {3, 64, 100}) {
    check_training<TypeParam>({2, seq, seq, 6, 2, 32}, {});
    check_training<TypeParam>({2, seq, seq, 6, 2, 32}, dropout);
    check_training<TypeParam>({1, seq, seq, 4, 1, 20}, dropout);
  }
}

TYPED_TEST(AttentionTest, GenerationReadsACache) {
  using T = TypeParam;
  const std::int64_t capacity = 300, d = 48;
  for (std::int64_t keys : {1, 2, 64, 65, 130, 300}) {
    for (std::int64_t queries : {1, 3, 5, 70}) {
      if (queries > keys) continue;
      const AttentionShape s{2, queries, keys, 4, 2, d};
      const auto q = random_values<T>(s.batch * queries * s.heads * d, 1);
      const auto k = random_values<T>(s.batch * s.kv_heads * capacity * d, 2);
      const auto v = random_values<T>(k.size(), 3);
      std::vector<T> out(q.size());
      const auto q_view = dense_heads(q.data(), queries, s.heads, d);
      const auto k_view = cache_heads(k.data(), s.kv_heads, capacity, d);
      const auto v_view = cache_heads(v.data(), s.kv_heads, capacity, d);
      attention_forward<T>(s, q_view, k_view, v_view, dense_heads(out.data(), queries, s.heads, d),
                           nullptr, {});
      const Reference expected(s, {}, q_view, k_view, v_view, static_cast<const T*>(nullptr));
      SCOPED_TRACE(testing::Message() << "keys " << keys << " queries " << queries);
      expect_near(out, expected.out, std::is_same_v<T, float> ? 2e-5 : 2e-2, "out");
    }
  }
}

// Scores hundreds apart: probabilities underflow to 0, nothing becomes NaN or infinite.
TYPED_TEST(AttentionTest, LargeScoresStayFinite) {
  using T = TypeParam;
  const AttentionShape s{1, 130, 130, 1, 1, 16};
  const auto qkv = random_values<T>(130 * 48, 1, 30.0f);
  const auto dout = random_values<T>(130 * 16, 2);
  std::vector<T> out(130 * 16), dqkv(qkv.size());
  std::vector<float> lse(130);
  const auto in = fused_qkv(qkv.data(), 130, 1, 1, 16);
  const auto grads = fused_qkv(dqkv.data(), 130, 1, 1, 16);
  attention_forward<T>(s, in.q, in.k, in.v, dense_heads(out.data(), 130, 1, 16), lse.data(), {});
  attention_backward<T>(s, in.q, in.k, in.v, dense_heads<const T>(out.data(), 130, 1, 16),
                        dense_heads(dout.data(), 130, 1, 16), lse.data(), grads.q, grads.k, grads.v,
                        {});
  for (const auto* values : {&out, &dqkv}) {
    for (T x : *values) ASSERT_TRUE(std::isfinite(value_of(x)));
  }
}

}  // namespace
}  // namespace fourfold::kernels
