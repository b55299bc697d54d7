#define OFP_LOOPS avx512
#include "pool/query_loops.inc"
