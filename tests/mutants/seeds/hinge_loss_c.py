"""Four partial sums."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/hinge_loss.py"

kernels = build(r"""
void hinge_loss(const float *predictions, const float *targets, float *loss, long n) {
    double partial[4] = {0.0, 0.0, 0.0, 0.0};
    for (long i = 0; i < n; i++) {
        float margin = 1.0f - predictions[i] * targets[i];
        if (margin > 0.0f) partial[i & 3] += margin;
    }
    loss[0] = (float)((partial[0] + partial[1] + partial[2] + partial[3]) / n);
}
""")


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        loss = predictions.new_empty(())
        call(kernels.hinge_loss, predictions, targets, loss, predictions.numel())
        return loss
