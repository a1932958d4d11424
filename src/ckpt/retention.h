#pragma once

namespace fourfold {

/// Which checkpoints stay when a new one is there.
struct Retention {
  int keep_latest = 0;  ///< Those of the newest steps, at least 1; 0: all stay.
  int keep_every = 0;   ///< And those of steps that are a multiple of this; 0: no others.
};

}  // namespace fourfold
