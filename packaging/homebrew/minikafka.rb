# For a tap of one's own: pip fetches the dependencies, in the versions of constraints.txt. homebrew/core wants each of them as a `resource`,
# which `brew update-python-resources minikafka` writes. `packaging/render.py` fills in what stands between @.
class Minikafka < Formula
  include Language::Python::Virtualenv

  desc "Replicated log server that speaks Apache Kafka's protocol"
  homepage "@HOMEPAGE@"
  url "@URL@"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on "python@3.13"

  def install
    virtualenv_create(libexec, "python3.13", without_pip: false)
    system libexec/"bin/python", "-m", "pip", "install", "--constraint", buildpath/"constraints.txt", buildpath
    bin.install_symlink libexec/"bin/minikafka"
    generate_completions_from_executable(bin/"minikafka", "completion", shells: [:bash, :zsh, :fish])
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/minikafka --version")
    assert_match "Commands:", shell_output("#{bin}/minikafka --help")
  end
end
