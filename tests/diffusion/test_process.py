"""The process against diffusers' scheduler, against torch's distributions and against closed forms."""

import math

import pytest
import torch
from diffusers import DDIMScheduler, UNet2DModel
from tiny import ALPHAS, CLASSES, SHAPE, Network, model, process, seeded
from torch.distributions import Independent, Normal, kl_divergence

from purectrl.core import InputError, Key
from purectrl.diffusion.models import GuidedDiffusion, PixelModel, clip_straight_through
from purectrl.diffusion.process import AffineSteps, Gaussian, path, torch_generator


def scheduler(**settings):
    return DDIMScheduler(**{"clip_sample": False, "beta_schedule": "scaled_linear", **settings})


def pair(seed=0, n=3):
    generator = torch_generator(Key.from_seed(seed))
    return [torch.randn(n, *SHAPE, generator=generator, dtype=torch.float64) for _ in range(3)]


V = {"prediction_type": "v_prediction"}


@pytest.mark.parametrize("settings", [{}, {"set_alpha_to_one": False, "steps_offset": 1}, V])
def test_every_step_is_the_scheduler_s(settings):
    theirs = scheduler(**settings)
    ours = AffineSteps.ddim_from_scheduler(theirs, steps=10)
    x, noise, fresh = pair()
    for k, s in enumerate(theirs.timesteps):
        step = theirs.step(noise, s, x, eta=1.0, variance_noise=fresh)
        assert torch.allclose(ours.mean(x, noise, k) + ours.sigma[k] * fresh, step.prev_sample, atol=1e-5)
        assert torch.allclose(ours.predict_x0(x, noise, k), step.pred_original_sample, rtol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"set_alpha_to_one": False, "steps_offset": 1}])
def test_log_probabilities_are_those_of_the_scheduler(settings):
    """The mean from the scheduler without noise, the deviation from its variance: their density at a third point."""
    theirs = scheduler(**settings)
    ours = AffineSteps.ddim_from_scheduler(theirs, steps=10)
    x, noise, there = pair()
    for k, s in enumerate(theirs.timesteps):
        mean = theirs.step(noise, s, x, eta=1.0, variance_noise=torch.zeros_like(x)).prev_sample
        deviation = float(theirs._get_variance(s, s - 100)) ** 0.5
        assert ours.sigma[k] == pytest.approx(deviation, abs=1e-6)
        if deviation == 0:
            assert k == 9
            continue
        expected = Independent(Normal(mean, deviation), 3).log_prob(mean + deviation * there)
        found = ours.log_probability(mean + deviation * there, ours.mean(x, noise, k), k)
        assert torch.allclose(found, expected, rtol=1e-3)


def test_the_kl_of_a_step_is_that_of_two_normal_distributions_summed_over_dimensions():
    ours = process()
    one, other, _ = pair()
    for k in range(ours.steps):
        sigma = ours.kl_sigma[k]
        expected = kl_divergence(Independent(Normal(one, sigma), 3), Independent(Normal(other, sigma), 3))
        assert torch.allclose(ours.kl(one, other, k), expected)


def test_the_weight_of_a_step_is_the_kl_of_one_unit_of_noise():
    ours = process()
    x, noise, other = pair()
    for k in range(ours.steps):
        kl = ours.kl(ours.mean(x, noise, k), ours.mean(x, other, k), k)
        assert torch.allclose(kl, ours.weight[k] * (noise - other).flatten(1).square().sum(1))


def test_a_last_step_without_noise_has_finite_densities():
    ours = process(last=1.0)
    x, noise, other = pair()
    last = ours.steps - 1
    assert ours.sigma[last] == 0
    assert torch.equal(ours.sample(x, last, torch.Generator()), x)
    assert torch.allclose(ours.mean(x, noise, last), ours.predict_x0(x, noise, last))
    assert math.isfinite(float(ours.kl(x, other, last).sum()) + float(ours.log_probability(x, other, last).sum()))
    assert ours.kl_sigma[last] == min(ours.sigma[:-1])


def test_the_divergence_of_paths_bounds_that_of_images():
    """A denoiser that is linear in x makes every state normal: all laws are known in closed form."""
    ours = process(steps=6, last=0.999)
    slopes = (0.3, 0.35)
    means, variances, chain = [0.0, 0.0], [1.0, 1.0], 0.0
    for k in range(ours.steps):
        a, gain, sigma = ours.carry[k], ours.gain[k], ours.sigma[k]
        second = variances[0] + means[0] ** 2  # E x² under the first law
        chain += (gain * (slopes[0] - slopes[1])) ** 2 * second / (2 * sigma**2)
        # the same number from the code under test, at the points ±sqrt(E x²)
        x = torch.full((1, *SHAPE), math.sqrt(second), dtype=torch.float64)
        step = ours.kl(*(ours.mean(x, slope * x, k) for slope in slopes), k) / x.numel()
        assert step.item() == pytest.approx((gain * (slopes[0] - slopes[1])) ** 2 * second / (2 * sigma**2))
        variances = [(a + gain * s) ** 2 * v + sigma**2 for s, v in zip(slopes, variances, strict=True)]
        end = kl_divergence(*(Normal(0.0, math.sqrt(v)) for v in variances)).item()
        assert 0 < end <= chain


def test_the_kl_of_initial_distributions_is_torch_s():
    generator = torch_generator(Key.from_seed(1))
    draws = [torch.randn(2, 3, 3, generator=generator, dtype=torch.float64) for _ in range(4)]
    one, other = Gaussian(draws[0], 0.3 * draws[1]), Gaussian(draws[2], 0.3 * draws[3])
    normals = [Independent(Normal(g.mean, g.log_scale.exp()), 3) for g in (one, other)]
    assert one.kl(other).item() == pytest.approx(kl_divergence(*normals).item())
    assert one.kl(one).item() == 0
    draws = one.sample(20_000, generator)
    assert torch.allclose(draws.mean(0), one.mean, atol=0.1)
    assert torch.allclose(draws.std(0).log(), one.log_scale, atol=0.05)


def test_the_exact_denoiser_of_one_image_leads_to_it():
    """If all data are one image c, the noise in x is (x − sqrt(ᾱ) c) / sqrt(1 − ᾱ), and every path ends at c."""
    ours = process(steps=8)
    image = torch.full(SHAPE, 0.4)
    at = ALPHAS
    denoise = lambda x, s: (x - math.sqrt(at[s]) * image) / math.sqrt(1 - at[s])  # noqa: E731
    generator = torch_generator(Key.from_seed(0))
    *_, end = path(ours, denoise, torch.randn(5, *SHAPE, generator=generator), generator)
    assert end.output is None
    assert end.k == 8
    assert torch.allclose(end.x, image.expand(5, *SHAPE), atol=1e-5)


def test_the_exact_denoiser_of_normal_data_keeps_their_variance():
    """Data N(0, v): the noise in x is sqrt(1 − ᾱ) x / (ᾱ v + 1 − ᾱ). Many small steps must end at variance v."""
    v, ours = 0.25, AffineSteps.ddim_from_alphas(ALPHAS, range(999, 0, -5))
    at = ALPHAS
    denoise = lambda x, s: math.sqrt(1 - at[s]) * x / (at[s] * v + 1 - at[s])  # noqa: E731
    generator = torch_generator(Key.from_seed(0))
    *_, end = path(ours, denoise, torch.randn(4000, generator=generator), generator)
    assert end.x.var().item() == pytest.approx(v, rel=0.08)


def test_v_prediction_and_noise_prediction_of_one_network_are_one_process():
    """A network that predicts v, and the same one converted to predict the noise, have equal means, images and weights."""
    noise_steps, v_steps = (
        AffineSteps.ddim_from_scheduler(scheduler(prediction_type=kind), steps=10)
        for kind in ("epsilon", "v_prediction")
    )
    x, v, other = pair()
    theirs = scheduler()
    for k, s in enumerate(v_steps.timesteps):
        a = float(theirs.alphas_cumprod.double()[s])
        noise, other_noise = (math.sqrt(a) * one + math.sqrt(1 - a) * x for one in (v, other))
        assert torch.allclose(v_steps.mean(x, v, k), noise_steps.mean(x, noise, k))
        assert torch.allclose(v_steps.predict_x0(x, v, k), noise_steps.predict_x0(x, noise, k), rtol=1e-4)
        # the divergence depends on the distributions, not on what the network predicts
        assert v_steps.weight[k] * (v - other).square().sum() == pytest.approx(
            noise_steps.weight[k] * (noise - other_noise).square().sum()
        )


def flow_scheduler(**settings):
    from diffusers import FlowMatchEulerDiscreteScheduler

    return FlowMatchEulerDiscreteScheduler(**{"shift": 3.0, **settings})


def test_a_flow_with_little_noise_is_the_scheduler_s_ode():
    theirs = flow_scheduler()
    ours = AffineSteps.flow_from_scheduler(theirs, noise=1e-6, num_inference_steps=8)
    assert ours.timesteps == pytest.approx(theirs.timesteps.tolist())
    x, velocity, _ = pair()
    for k, s in enumerate(theirs.timesteps):
        expected = theirs.step(velocity.float(), s, x.float()).prev_sample
        assert torch.allclose(ours.mean(x, velocity, k).float(), expected, atol=1e-5)
    assert ours.sigma[-1] == 0
    assert torch.allclose(ours.mean(x, velocity, 7), ours.predict_x0(x, velocity, 7)), "the last step ends at the image"


@pytest.mark.parametrize("noise", [0.3, 0.7, 1.0])
def test_the_exact_flow_of_normal_data_keeps_their_variance_whatever_the_noise(noise):
    """Data N(0, v): at level σ, x has variance D = (1−σ)²v + σ², and the velocity is (σ − (1−σ)v)/D · x."""
    v, levels = 0.25, [1 - i / 400 for i in range(401)]
    ours = AffineSteps.flow(levels, noise=noise)

    def velocity(x, s):
        level = s / 1000
        return (level - (1 - level) * v) / ((1 - level) ** 2 * v + level**2) * x

    generator = torch_generator(Key.from_seed(0))
    *_, end = path(ours, velocity, torch.randn(4000, generator=generator), generator)
    assert end.x.var().item() == pytest.approx(v, rel=0.1)


def test_the_exact_flow_of_one_image_leads_to_it():
    image, ours = torch.full(SHAPE, 0.4), AffineSteps.flow([1.0, 0.75, 0.5, 0.25, 0.0])
    generator = torch_generator(Key.from_seed(0))
    start = torch.randn(5, *SHAPE, generator=generator)
    *steps, end = path(ours, lambda x, s: (x - image) / (s / 1000), start, generator)
    assert torch.allclose(end.x, image.expand(5, *SHAPE), atol=1e-5)
    assert all(torch.allclose(ours.predict_x0(s.x, s.output, s.k), image, atol=1e-5) for s in steps)


def test_guidance_mixes_two_predictions_and_one_is_none():
    tiny = model()
    weights, x = tiny.pretrained().weights, pair()[0].float()
    conditional, nothing = tiny.encode([0, 1, 2]), tiny.encode([None] * 3)
    with_it, without = (GuidedDiffusion(tiny, process()).denoiser(weights, c)(x, 500) for c in (conditional, nothing))
    assert not torch.allclose(with_it, without)
    assert torch.allclose(
        GuidedDiffusion(tiny, process(), 3.0).denoiser(weights, conditional)(x, 500),
        without + 3 * (with_it - without),
        atol=1e-5,
    )
    assert torch.equal(GuidedDiffusion(tiny, process(), 1.0).denoiser(weights, conditional)(x, 500), with_it)


def test_private_generators_neither_read_nor_move_the_global_one():
    ours, tiny = process(), model()

    def end(seed):
        generator = torch_generator(Key.from_seed(seed))
        denoise = GuidedDiffusion(tiny, ours).denoiser(tiny.pretrained().weights, tiny.encode([0, 1]))
        with torch.no_grad():
            *_, last = path(ours, denoise, tiny.pretrained().initial.sample(2, generator), generator)
        return last.x

    before = torch.random.get_rng_state()
    first = end(0)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.rand(7)
    assert torch.equal(first, end(0))
    assert not torch.equal(first, end(1))


def test_a_unet2d_fits_with_classes_and_without():
    layers = {"sample_size": 8, "in_channels": 1, "out_channels": 1, "layers_per_block": 1, "norm_num_groups": 4}
    blocks = {
        "block_out_channels": (4, 8),
        "down_block_types": ("DownBlock2D",) * 2,
        "up_block_types": ("UpBlock2D",) * 2,
    }
    x, steps = torch.zeros(2, 1, 8, 8), torch.tensor([5, 900])
    for classes in (None, 4):
        unet = UNet2DModel(**layers, **blocks, num_class_embeds=classes, add_attention=False)
        fitted = PixelModel.unet2d(unet, empty=3)
        assert fitted.shape == (1, 8, 8)
        labels = fitted.encode([0, 1])
        with torch.no_grad():
            expected = unet(x, steps, class_labels=labels if classes else None).sample
            found = fitted.denoise(fitted.pretrained().weights, x, steps, labels)
        assert torch.equal(found, expected)


def test_weights_laid_over_the_network_leave_it_as_it_was():
    tiny = model()
    x, steps, classes = torch.zeros(2, *SHAPE), torch.tensor([5, 900]), torch.tensor([0, 1])
    weights = tiny.pretrained().weights
    before = tiny.denoise(weights, x, steps, classes)
    other = tiny.denoise({name: tensor + 0.1 for name, tensor in weights.items()}, x, steps, classes)
    assert not torch.equal(before, other)
    assert torch.equal(before, tiny.denoise(weights, x, steps, classes))


def test_an_unconditional_network_fits():
    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Linear(1, 1)

        def forward(self, x, steps):
            return self.scale(x[..., None])[..., 0]

    fitted = PixelModel.unconditional(seeded(Plain()), SHAPE)
    x = torch.ones(2, *SHAPE)
    noise = GuidedDiffusion(fitted, process(), 2.0).denoiser(fitted.pretrained().weights, fitted.encode([0, 2]))(x, 10)
    assert torch.allclose(noise, fitted.network(x, None))


def test_images_are_in_range_exactly_and_gradients_pass():
    value = torch.linspace(-3, 3, 101, requires_grad=True)
    clipped = clip_straight_through(value)
    assert clipped.min() == 0
    assert clipped.max() == 1
    clipped.sum().backward()
    assert torch.equal(value.grad, torch.ones(101))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AffineSteps.ddim_from_alphas(ALPHAS, []), "timesteps: at least one denoising step is needed"),
        (lambda: AffineSteps.ddim_from_alphas(ALPHAS, [1000]), "timesteps: must lie between 0 and 999"),
        (lambda: AffineSteps.ddim_from_alphas(ALPHAS, [10, 500]), "alphas: must increase at every step"),
        (lambda: AffineSteps.ddim_from_alphas(ALPHAS, [500], eta=0.0), r"eta: must lie in \(0, 1\], not 0.0"),
        (
            lambda: AffineSteps.ddim_from_scheduler(scheduler(clip_sample=True), 5),
            "scheduler: clip_sample and thresholding change the drift",
        ),
        (lambda: AffineSteps.ddim_from_scheduler(scheduler(prediction_type="sample"), 5), "must predict the noise"),
        (lambda: AffineSteps.flow([1.0]), "levels: at least two noise levels are needed"),
        (lambda: AffineSteps.flow([0.5, 0.7, 0.0]), "levels: must decrease at every step"),
        (lambda: AffineSteps.flow([1.0, 0.0], noise=0.0), "noise: must be positive, not 0.0"),
        (lambda: PixelModel.conditional(Network(), SHAPE).encode([None]), "guidance: this network has no class for"),
        (lambda: model().encode(["a dog"]), "conditions: must be classes, which are integers"),
        (lambda: PixelModel.conditional(Network().requires_grad_(False), SHAPE), "network: none of its parameters"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_three_classes_and_none():
    assert model().encode([0, None, 2]).tolist() == [0, CLASSES, 2]
