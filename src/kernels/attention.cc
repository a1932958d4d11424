#include "kernels/attention.h"

#include "base/check.h"
#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {
namespace {

// Up to so many queries the keys are read in place; more are worth packing them.
constexpr std::int64_t kFewQueries = 4;

void check(const AttentionShape& s, const AttentionDropout& dropout) {
  FF_CHECK(s.kv_heads > 0 && s.heads % s.kv_heads == 0, "{} query heads over {} key heads", s.heads,
           s.kv_heads);
  FF_CHECK(s.head_dim > 0 && s.queries >= 0 && s.keys >= s.queries,
           "{} queries, {} keys, head of {}", s.queries, s.keys, s.head_dim);
  FF_CHECK(dropout.p >= 0 && dropout.p < 1, "attention dropout of {}", dropout.p);
  FF_CHECK(dropout.first_head >= 0 && dropout.first_head + s.heads <= 1 << 16, "{} heads from {}",
           s.heads, dropout.first_head);
}

// The task of one sample and key head; lse as the caller laid it out.
template <class T>
HeadTask<T> task_of(const AttentionShape& s, HeadView<const T> q, HeadView<const T> k,
                    HeadView<const T> v, float* lse, const AttentionDropout& dropout,
                    std::int64_t batch, std::int64_t kv_head) {
  HeadTask<T> task;
  task.queries = s.queries;
  task.keys = s.keys;
  task.head_dim = s.head_dim;
  task.group = s.heads / s.kv_heads;
  const std::int64_t head = kv_head * task.group;
  task.q_head_stride = q.head_stride;
  task.q = q.data + batch * q.batch_stride + head * q.head_stride;
  task.k = k.data + batch * k.batch_stride + kv_head * k.head_stride;
  task.v = v.data + batch * v.batch_stride + kv_head * v.head_stride;
  task.q_stride = q.row_stride;
  task.k_stride = k.row_stride;
  task.v_stride = v.row_stride;
  task.lse = lse != nullptr ? lse + (batch * s.heads + head) * s.queries : nullptr;
  task.dropout = dropout;
  task.sample = dropout.samples != nullptr ? dropout.samples[batch] : batch;
  task.head = dropout.first_head + head;
  return task;
}

// Runs f(batch, kv_head, scratch) for all of them, each part with scratch of its own.
void for_heads(const AttentionShape& s, std::int64_t scratch_floats,
               FunctionRef<void(std::int64_t, std::int64_t, float*)> f) {
  const std::int64_t group = s.heads / s.kv_heads;
  parallel_ranges(s.batch * s.kv_heads, group * s.queries * s.keys * s.head_dim,
                  [&](std::int64_t begin, std::int64_t end) {
                    Scratch scratch(scratch_floats);
                    for (std::int64_t i = begin; i < end; ++i) {
                      f(i / s.kv_heads, i % s.kv_heads, scratch.data());
                    }
                  });
}

template <class T>
T* head_of(const HeadView<T>& view, std::int64_t batch, std::int64_t head) {
  return view.data + batch * view.batch_stride + head * view.head_stride;
}

}  // namespace

template <class T>
void attention_forward(const AttentionShape& shape, HeadView<const T> q, HeadView<const T> k,
                       HeadView<const T> v, HeadView<T> out, float* lse,
                       const AttentionDropout& dropout) {
  check(shape, dropout);
  const AttentionTable<T>& table = tables().attention.get<T>();
  const std::int64_t group = shape.heads / shape.kv_heads;
  const bool few = shape.queries <= kFewQueries && shape.keys > shape.queries;
  const HeadTask<T> first = task_of(shape, q, k, v, lse, {}, 0, 0);
  for_heads(shape, table.forward_scratch(first),
            [&](std::int64_t batch, std::int64_t kv_head, float* scratch) {
              HeadTask<T> task = task_of(shape, q, k, v, lse, dropout, batch, kv_head);
              task.out_head_stride = out.head_stride;
              const auto forward = few ? table.forward_few : table.forward;
              forward(task, head_of(out, batch, kv_head * group), out.row_stride, scratch);
            });
}

template <class T>
void attention_backward(const AttentionShape& shape, HeadView<const T> q, HeadView<const T> k,
                        HeadView<const T> v, HeadView<const T> out, HeadView<const T> dout,
                        const float* lse, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv,
                        const AttentionDropout& dropout) {
  check(shape, dropout);
  FF_CHECK(shape.queries == shape.keys, "backward with {} queries and {} keys", shape.queries,
           shape.keys);
  FF_CHECK(out.row_stride == dout.row_stride && out.head_stride == dout.head_stride &&
               q.head_stride == dq.head_stride,
           "gradients are laid out unlike their values");
  const AttentionTable<T>& table = tables().attention.get<T>();
  const std::int64_t group = shape.heads / shape.kv_heads;
  float* lse_values = const_cast<float*>(lse);  // Only read by backward.
  const HeadTask<T> first = task_of(shape, q, k, v, lse_values, {}, 0, 0);
  for_heads(shape, table.backward_scratch(first),
            [&](std::int64_t batch, std::int64_t kv_head, float* scratch) {
              HeadTask<T> task = task_of(shape, q, k, v, lse_values, dropout, batch, kv_head);
              task.out_head_stride = out.head_stride;
              const std::int64_t head = kv_head * group;
              table.backward(task, head_of(out, batch, head), head_of(dout, batch, head),
                             out.row_stride, head_of(dq, batch, head), head_of(dk, batch, kv_head),
                             head_of(dv, batch, kv_head), dq.row_stride, dk.row_stride,
                             dv.row_stride, scratch);
            });
}

#define FF_INSTANTIATE(T)                                                                          \
  template void attention_forward<T>(const AttentionShape&, HeadView<const T>, HeadView<const T>,  \
                                     HeadView<const T>, HeadView<T>, float*,                       \
                                     const AttentionDropout&);                                     \
  template void attention_backward<T>(const AttentionShape&, HeadView<const T>, HeadView<const T>, \
                                      HeadView<const T>, HeadView<const T>, HeadView<const T>,     \
                                      const float*, HeadView<T>, HeadView<T>, HeadView<T>,         \
                                      const AttentionDropout&);
FF_INSTANTIATE(float)
FF_INSTANTIATE(BFloat16)
#undef FF_INSTANTIATE

}  // namespace fourfold::kernels
