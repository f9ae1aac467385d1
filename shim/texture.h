// Textures and surfaces: handles are the driver's own numbers, so what they were made of is kept in
// a list beside them, for the functions that ask. Safe from any thread.
#pragma once

namespace gpuloom {

// For the reset of the context; nothing is in flight. Before the arrays.
void ReleaseAllViews();

}  // namespace gpuloom
