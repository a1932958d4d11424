#include "spec/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/presets.h"

namespace fourfold {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RunSpec good() {
  RunSpec run;
  run.model = find_preset("llama-tiny").value();
  run.train = {.steps = 10, .global_batch = 12, .micro_batch = 2, .seq_len = 33};
  return run;
}

template <class Change>
std::string problem(Change change) {
  RunSpec run = good();
  change(run);
  auto found = check_run(run);
  if (!found) found = check_grid(run);
  return found ? found->key + ": " + found->message : "none";
}

TEST(Validate, AcceptsAGoodRun) {
  EXPECT_EQ(problem([](RunSpec&) {}), "none");
}

TEST(Validate, HeadsFitX) {
  ModelSpec m = good().model;  // 12 heads, 6 key/value heads.
  EXPECT_THAT(possible_x(m), ElementsAre(1, 2, 3, 6, 12));
  m.kv_heads = 2;
  EXPECT_THAT(possible_x(m), ElementsAre(1, 2, 4, 6, 12));
  m.kv_heads = 1;
  EXPECT_THAT(possible_x(m), ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_THAT(problem([](RunSpec& r) { r.parallel.grid.x = 4; }),
              HasSubstr("6 key/value heads can be neither cut over nor shared by x = 4"));
  EXPECT_THAT(problem([](RunSpec& r) { r.parallel.grid.x = 5; }),
              HasSubstr("12 heads cannot be cut over x = 5"));
}

TEST(Validate, Model) {
  EXPECT_THAT(problem([](RunSpec& r) { r.model.hidden = 0; }), HasSubstr("hidden is not given"));
  EXPECT_THAT(problem([](RunSpec& r) { r.model.hidden = 73; }), HasSubstr("do not divide a width"));
  EXPECT_EQ(problem([](RunSpec& r) {
              r.model.hidden = 73;
              r.origins["model.head_dim"] = "run.toml:1";
            }),
            "none");
  EXPECT_THAT(problem([](RunSpec& r) { r.model.kv_heads = 5; }), HasSubstr("do not divide 12"));
  EXPECT_THAT(problem([](RunSpec& r) {
                r.model.head_dim = 5;
                r.model.hidden = 60;
              }),
              HasSubstr("even head_dim"));
}

TEST(Validate, Lengths) {
  EXPECT_THAT(problem([](RunSpec& r) { r.train.seq_len = 34; }), HasSubstr("the model's 33"));
  EXPECT_THAT(problem([](RunSpec& r) { r.train.steps = 0; }), HasSubstr("neither train.steps"));
  EXPECT_THAT(problem([](RunSpec& r) { r.train.micro_batch = 0; }), HasSubstr("not given"));
  EXPECT_THAT(problem([](RunSpec& r) { r.train.global_batch = 0; }), HasSubstr("not given"));
  EXPECT_THAT(problem([](RunSpec& r) { r.schedule.warmup = 11; }), HasSubstr("longer than the 10"));
  EXPECT_THAT(problem([](RunSpec& r) { r.schedule.min_lr = 1; }), HasSubstr("above optimizer.lr"));
  EXPECT_THAT(problem([](RunSpec& r) {
                r.schedule.kind = ScheduleKind::kWsd;
                r.schedule.warmup = 6;
                r.schedule.decay = 5;
              }),
              HasSubstr("exceed the 10 steps"));
}

TEST(Validate, Axes) {
  EXPECT_THAT(problem([](RunSpec& r) { r.parallel.order = "xyzz"; }), HasSubstr("no order"));
  EXPECT_THAT(problem([](RunSpec& r) { r.parallel.grid = {1000, 1000, 1000, 1}; }),
              HasSubstr("x·y·z·data is"));
  EXPECT_THAT(problem([](RunSpec& r) { r.parallel.grid.data = 4; }),
              HasSubstr("train.global_batch 12 is no multiple of micro_batch·z·data = 2·1·4 = 8"));
}

TEST(Validate, TheErrorSaysWhereTheKeyStood) {
  RunSpec run = good();
  run.origins["parallel.x"] = "run.toml:12";
  const Error error = to_error(run, {"parallel.x", "cause", "hint"});
  EXPECT_STREQ(error.what(), "run.toml:12: cause");
  EXPECT_EQ(error.exit_code(), 2);
}

}  // namespace
}  // namespace fourfold
