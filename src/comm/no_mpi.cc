#include "base/error.h"
#include "comm/mpi_world.h"

namespace fourfold {

bool mpi_available() { return false; }

std::string mpi_library() { return ""; }

std::unique_ptr<Communicator> make_mpi_world(const CommOptions&) {
  throw Error(ErrorKind::kUsage, "this build has no MPI",
              "install an MPI library and configure again, or run the ranks as threads");
}

}  // namespace fourfold
