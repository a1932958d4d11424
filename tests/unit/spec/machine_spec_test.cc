#include "spec/machine_spec.h"

#include <gmock/gmock.h>

namespace fourfold {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMachine = R"(
[machine]
name = "a"
source = "b"
[node]
devices = 8
[links.inside]
bandwidth = 3e11
latency = 2e-6
[links.between]
bandwidth = 100000000000
)";

TEST(MachineSpec, ReadsAFile) {
  const MachineSpec m = parse_machine(kMachine, "m.toml").value();
  EXPECT_EQ(m.name, "a");
  EXPECT_EQ(m.source, "b");
  EXPECT_EQ(m.devices, 8);
  EXPECT_DOUBLE_EQ(m.inside.bandwidth, 3e11);
  EXPECT_DOUBLE_EQ(m.inside.latency, 2e-6);
  EXPECT_DOUBLE_EQ(m.between.bandwidth, 1e11);
  EXPECT_DOUBLE_EQ(m.between.latency, 0);
}

std::string refusal(const std::string& text) {
  const auto machine = parse_machine(text, "m.toml");
  if (machine) return "accepted";
  EXPECT_EQ(machine.error().kind(), ErrorKind::kUsage);
  EXPECT_FALSE(machine.error().hint().empty());
  return std::string(machine.error().what()) + " | " + machine.error().hint();
}

TEST(MachineSpec, RefusesWhatItDoesNotKnow) {
  const std::string whole = kMachine;
  EXPECT_THAT(refusal(whole + "latncy = 3\n"),
              HasSubstr("m.toml:12: links.between.latncy is no key of a machine file | did you "
                        "mean links.between.latency?"));
  EXPECT_THAT(refusal("[node]\ndevices = 0\n"), HasSubstr("from 1 to 1000000, not the number 0"));
  EXPECT_THAT(refusal("[node]\ndevices = \"two\"\n"), HasSubstr("m.toml:2: node.devices"));
  EXPECT_THAT(refusal("[machine]\nname = 3\n"), HasSubstr("must be a string"));
  EXPECT_THAT(refusal("[links.inside]\nlatency = -1\n"), HasSubstr("a number from 0"));
  EXPECT_THAT(refusal("[links.inside]\nlatency = [1]\n"), HasSubstr("must be one value"));
  EXPECT_THAT(refusal(""), HasSubstr("links.inside.bandwidth is missing"));
  EXPECT_THAT(refusal("[links.inside]\nbandwidth = 1\n[links.between]\nbandwidth = 0\n"),
              HasSubstr("a bandwidth of 0"));
  EXPECT_THAT(refusal("[node\n"), HasSubstr("not TOML"));
}

}  // namespace
}  // namespace fourfold
