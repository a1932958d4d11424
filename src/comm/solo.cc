#include "base/check.h"
#include "comm/call_communicator.h"

namespace fourfold {
namespace {

/// The public calls of Communicator do everything for a group of one, so no call gets here.
class SoloCommunicator final : public CallCommunicator {
 public:
  SoloCommunicator(std::string name, std::shared_ptr<RankContext> context)
      : CallCommunicator(0, {0}, std::move(name), std::move(context)) {}

  void abort(const std::string&) noexcept override {}  // There is nobody to tell.

 private:
  void execute(const Call& call) override {
    FF_CHECK(false, "{} reached a group of one", describe(call, name()));
  }
  std::unique_ptr<Communicator> do_subgroup(std::span<const int>, std::string name) override {
    return std::make_unique<SoloCommunicator>(std::move(name), context());
  }
};

}  // namespace

std::unique_ptr<Communicator> make_solo(const CommOptions& options) {
  return std::make_unique<SoloCommunicator>("self", std::make_shared<RankContext>(0, options));
}

}  // namespace fourfold
