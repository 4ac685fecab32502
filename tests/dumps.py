"""What `cuobjdump` prints of two kernels, for tests that need no compiler."""

USAGE = """\

Fatbin elf code:
================
arch = sm_90
code version = [1,7]
host = linux
compile_size = 64bit

Resource usage:
 Common:
  GLOBAL:0
 Function _Z6matmulPKfS0_Pfi:
  REG:168 STACK:64 SHARED:33792 LOCAL:0 CONSTANT[0]:556 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function _ZN29_GLOBAL__N__0a1b_4_cuda_cu_9d4reluILi4EEEvPK6float4PS1_m:
  REG:10 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:552 TEXTURE:0 SURFACE:0 SAMPLER:0

Fatbin elf code:
================
arch = sm_80
code version = [1,7]
host = linux
compile_size = 64bit

Resource usage:
 Common:
  GLOBAL:0
 Function _Z6matmulPKfS0_Pfi:
  REG:120 STACK:0 SHARED:16384 LOCAL:0 CONSTANT[0]:380 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
SASS = """\

Fatbin elf code:
================
arch = sm_90
code version = [1,7]
host = linux
compile_size = 64bit

\tcode for sm_90
\t\tFunction : _Z6matmulPKfS0_Pfi
\t.headerflags\t@"EF_CUDA_TEXMODE_UNIFIED EF_CUDA_64BIT_ADDRESS EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                       /* 0x00000a00ff017b82 */
                                                                                /* 0x000e220000000800 */
        /*0010*/              @!P0 LDGSTS.E.BYPASS.128 [R5], desc[UR8][R2.64] ; /* 0x0000000002057fae */
        /*0020*/                   LDG.E.128 R4, desc[UR8][R2.64] ;             /* 0x0000000802047981 */
        /*0030*/               @P1 LDG.E R8, desc[UR8][R2.64+0x10] ;            /* 0x0000100802087981 */
        /*0040*/                   LDSM.16.M88.4 R12, [R10] ;                   /* 0x000000000a0c783b */
        /*0050*/                   HMMA.1688.F32.TF32 R16, R12, R20, R16 ;      /* 0x000000140c10723c */
        /*0060*/                   HGMMA.64x128x16.F32 R24, gdesc[UR4], R24 ;   /* 0x01e0000004187df0 */
        /*0070*/                   STL [R1], R24 ;                              /* 0x0000001801007387 */
        /*0080*/                   LDL R24, [R1] ;                              /* 0x0000000001187983 */
        /*0090*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;                /* 0x0000000000007b1d */
        /*00a0*/              @UP0 UTMALDG.2D [UR8], [UR4] ;                    /* 0x00000008040075b4 */
        /*00b0*/                   STG.E.64 desc[UR8][R2.64], R24 ;             /* 0x0000001802007986 */
        /*00c0*/                   EXIT ;                                       /* 0x000000000000794d */
        /*00d0*/                   BRA 0xd0;                                    /* 0xfffffffc00fc7947 */
\t\t..........


\t\tFunction : _ZN29_GLOBAL__N__0a1b_4_cuda_cu_9d4reluILi4EEEvPK6float4PS1_m
\t.headerflags\t@"EF_CUDA_SM90"
        /*0000*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;    /* 0x0000000402047981 */
        /*0010*/                   FMNMX R4, RZ, R4, !PT ;                      /* 0x00000004ff047209 */
        /*0020*/                   FFMA R4, R4, R4, R4 ;                        /* 0x0000000404047223 */
        /*0030*/                   DFMA R4, R4, R4, R4 ;                        /* 0x0000000404047223 */
        /*0040*/                   MUFU.EX2 R4, R4 ;                            /* 0x0000000400047308 */
        /*0050*/                   SHFL.BFLY PT, R5, R4, 0x1, 0x1f ;            /* 0x0c201f0004057f89 */
        /*0060*/                   RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R4 ;  /* 0x0 */
        /*0070*/                   STG.E.128 desc[UR4][R2.64], R4 ;             /* 0x0000000402007986 */
        /*0080*/                   EXIT ;                                       /* 0x000000000000794d */
\t\t..........
"""
