// Included before every C++ file of llama.cpp. GCC up to 12 takes `_tile_loadconfig` to read 8 of the 64 bytes it is given and drops the
// stores to the rest, so that llama.cpp's first AMX product ends in a fault. Here all 64 bytes are an operand.
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])(config)))
#endif
