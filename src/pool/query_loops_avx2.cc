#define OFP_LOOPS avx2
#include "pool/query_loops.inc"
